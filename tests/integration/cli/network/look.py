"""look.py REVERSED…: runs in the guest as root and says how often something stands in what every process has in memory, its
environment and arguments included, and in the files that can be written. What is looked for is given in pieces, backwards,
and never made whole, so that the search does not find itself."""

import os
import re
import sys

wanted = re.compile(b"|".join(re.escape(a[:6].encode()) + b"[" + a[6].encode() + b"]" + re.escape(a[7:].encode()) for a in
                              ("".join(reversed(word)) for word in sys.argv[1:])))
found, read = 0, 0
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) == os.getpid():
        continue
    try:
        with open(f"/proc/{pid}/maps") as maps:
            places = [line.split()[0] for line in maps if line.split()[1].startswith("rw")]
        memory = open(f"/proc/{pid}/mem", "rb")
    except OSError:
        continue
    with memory:
        for place in places:
            begin, end = (int(x, 16) for x in place.split("-"))
            try:
                memory.seek(begin)
                data = memory.read(end - begin)
            except OSError:
                continue  # one that has no pages to read
            read += len(data)
            found += len(wanted.findall(data))
for top in ("/etc", "/home", "/root", "/run", "/tmp", "/var"):
    for folder, _, files in os.walk(top):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and not os.path.islink(path):
                with open(path, "rb") as file:
                    while data := file.read(1 << 24):
                        found += len(wanted.findall(data))
print("found", found, "in", "much" if read > 1 << 20 else "little")
