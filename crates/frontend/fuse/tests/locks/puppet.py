"""Calls what it is told to, one line after the other, and says what came of it."""
import errno, fcntl, os, signal, struct, sys

FILES = {}
ALARMS = []
TYPES = {"read": fcntl.F_RDLCK, "write": fcntl.F_WRLCK, "none": fcntl.F_UNLCK}
NAMES = {number: name for name, number in TYPES.items()}
RANGE = {("posix", "try"): fcntl.F_SETLK, ("posix", "wait"): fcntl.F_SETLKW,
         ("ofd", "try"): 37, ("ofd", "wait"): 38}
GET = {"posix": fcntl.F_GETLK, "ofd": 36}
FORM = "hhqqi4x"


def lock(kind, start, length):
    return struct.pack(FORM, TYPES[kind], os.SEEK_SET, int(start), int(length), 0)


def carry_out(what, slot, *words):
    if what == "open":
        FILES[slot] = os.open(words[0], int(words[1]), 0o644)
    elif what == "close":
        os.close(FILES.pop(slot))
    elif what == "dup":
        FILES[words[0]] = os.dup(FILES[slot])
    elif what in ("posix", "ofd"):
        kind, start, length, how = words
        fcntl.fcntl(FILES[slot], RANGE[what, how], lock(kind, start, length))
    elif what == "get":
        owner, kind, start, length = words
        held = fcntl.fcntl(FILES[slot], GET[owner], lock(kind, start, length))
        kind, _, start, length, pid = struct.unpack(FORM, held)
        return "free" if kind == fcntl.F_UNLCK else f"{NAMES[kind]} {start} {length} {pid}"
    elif what == "flock":
        kind, how = words
        ops = {"read": fcntl.LOCK_SH, "write": fcntl.LOCK_EX, "none": fcntl.LOCK_UN}
        fcntl.flock(FILES[slot], ops[kind] | (fcntl.LOCK_NB if how == "try" else 0))
    elif what == "alarms":
        # Waits, again and again, each of which a signal ends that comes at any moment. One that
        # comes before the call ends nothing, but the next one does.
        for n in range(int(words[0])):
            ALARMS.append(n)
            try:
                signal.setitimer(signal.ITIMER_REAL, (1 + n % 97) * 3e-6, 0.01)
                fcntl.flock(FILES[slot], fcntl.LOCK_EX)
                raise ValueError("the lock was free")
            except Interrupted:
                signal.setitimer(signal.ITIMER_REAL, 0)
    elif what == "fork":
        # A child that has all files, and lives until its input ends.
        read, write = os.pipe()
        if os.fork() == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
        FILES[slot] = write
    else:
        raise ValueError(what)
    return "ok"


class Interrupted(Exception):
    pass


def handler(number, _frame):
    if number == signal.SIGUSR1 or ALARMS:
        ALARMS.clear()
        raise Interrupted


signal.signal(signal.SIGUSR1, handler)
signal.signal(signal.SIGALRM, handler)
print(os.getpid(), flush=True)
for line in sys.stdin:
    try:
        answer = carry_out(*line.split())
    except OSError as e:
        answer = errno.errorcode[e.errno].replace("EDEADLOCK", "EDEADLK")
    except Interrupted:
        answer = "EINTR"
    print(answer, flush=True)
