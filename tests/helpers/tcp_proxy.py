"""A bad line: a TCP proxy that is slow, cuts connections, or goes deaf for a while."""

import socket
import struct
import threading
import time
from contextlib import suppress

# Lingering for no time makes closing a reset.
AT_ONCE = struct.pack("ii", 1, 0)


class Proxy:
    """Passes bytes between every connection and one address, in threads of its own.

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
        self._ended = threading.Event()
        self._sockets = []
        self._threads = []

    def __enter__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._sockets.append(self._listener)
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        self._ended.set()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with suppress(OSError):
            while not self._ended.is_set():
                caller, _ = self._listener.accept()
                self._sockets.append(caller)
                server = socket.create_connection(self.target)
                self._sockets.append(server)
                self._start(self._pass, caller, server, True)
                self._start(self._pass, server, caller, False)

    def _pass(self, source, sink, up):
        brought = 0
        with suppress(OSError):
            while piece := source.recv(16384):
                time.sleep(self.delay + (len(piece) / self.rate if self.rate else 0.0))
                while not up and self.deaf.is_set() and not self._ended.is_set():
                    time.sleep(0.05)
                brought += len(piece)
                if up and self.cut_after is not None and brought > self.cut_after:
                    self.cut_after, self.cuts = None, self.cuts + 1
                    for each in (source, sink):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                    break
                sink.sendall(piece)
        for each in (source, sink):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
