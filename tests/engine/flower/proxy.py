"""A bad line: a TCP proxy that is slow, cuts connections, or goes deaf for a while."""

import asyncio
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes between whoever connects and one address, in a thread of its own.

    `delay` seconds are added to every piece, `rate` bounds bytes a second each way; a connection
    that has brought `cut_after` bytes from the caller is reset, once; while `deaf` is set nothing
    comes back from the server.
    """

    def __init__(self, target):
        host, port = target.rsplit(":", 1)
        self.target = (host, int(port))
        self.delay = 0.0
        self.rate = None
        self.cut_after = None
        self.cuts = 0
        self.deaf = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stopped.set)
        self._thread.join(10)

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        self._stopped = asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._stopped.wait()
        server.close()
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _connect(self, reader, writer):
        with suppress(OSError):
            there, back = await asyncio.open_connection(*self.target)
            ways = [self._pass(reader, back, up=True), self._pass(there, writer, up=False)]
            await asyncio.gather(*ways, return_exceptions=True)
            back.close()
        writer.close()

    async def _pass(self, reader, writer, *, up):
        brought = 0
        with suppress(OSError):
            while piece := await reader.read(16384):
                await asyncio.sleep(self.delay + (len(piece) / self.rate if self.rate else 0.0))
                while not up and self.deaf.is_set():
                    await asyncio.sleep(0.05)
                brought += len(piece)
                if up and self.cut_after is not None and brought > self.cut_after:
                    self.cut_after, self.cuts = None, self.cuts + 1
                    writer.transport.abort()
                    reader._transport.abort()
                    return
                writer.write(piece)
                await writer.drain()
            writer.close()
