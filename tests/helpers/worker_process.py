"""A worker that obeys its tasks, in the place of the one that runs client apps."""

import os
import sys
import time
from multiprocessing.connection import Connection

from fedbb.flower.app.frames import RESIDENT, SINGLE_USE, receive_frames, send_frames

if __name__ == "__main__":
    connection = Connection(int(sys.argv[1]))
    while True:
        what, *rest = receive_frames(connection)
        if what == b"crash":
            os._exit(3)
        if what == b"hang":
            time.sleep(600)
        kind = SINGLE_USE if what == b"once" else RESIDENT
        send_frames(connection, [kind, str(os.getpid()).encode(), *rest])
