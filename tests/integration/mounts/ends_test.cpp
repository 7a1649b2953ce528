// Where a file ends: whatever the host does to it meanwhile, no zeros are read that were never in it.
#include <random>

#include "coherence.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

// A file system served by the program itself through /dev/fuse, which forces what is answered when: the
// kernel of the guest is what is tested here. What each read got is printed, as runs of bytes.
constexpr const char* forced_order = R"py(
import ctypes, itertools, os, queue, struct, threading
libc = ctypes.CDLL(None, use_errno=True)
LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26
fuse = os.open('/dev/fuse', os.O_RDWR)
where = b'/tmp/forced'
os.mkdir(where)
assert libc.mount(b'forced', where, b'fuse', 6, b'fd=%d,rootmode=40755,user_id=0,group_id=0' % fuse) == 0
content = {}            # by node
held = queue.Queue()    # requests that are answered by hand
by_hand = set()         # of which operations, and nodes

def attributes(node):
    file = node != 1
    size = len(content[node]) if file else 0
    return struct.pack('<6Q10I', node, size, 0, 0, 0, 0, 0, 0, size, 0o100644 if file else 0o40755, 1, 0, 0, 0, 4096, 0)
def answer(request, data=b''):
    os.write(fuse, struct.pack('<IiQ', 16 + len(data), 0, request[2]) + data)
def text(request):
    offset, size = struct.unpack_from('<QI', request[4], 8)
    return content[request[3]][offset:offset + size]
def respond(request, now=None):
    opcode, node, body = request[1], request[3], request[4]
    if opcode == INIT:
        flags = 1 << 0 | 1 << 5 | 1 << 12 | 1 << 22    # ASYNC_READ, BIG_WRITES, AUTO_INVAL_DATA, MAX_PAGES
        answer(request, struct.pack('<4I2H2I2H8I', 7, 31, 1 << 17, flags, 16, 12, 1 << 17, 1, 32, 0, *[0] * 8))
    elif opcode == LOOKUP:
        node = int(body[:-1])
        answer(request, struct.pack('<4Q2I', node, 0, 1000, 1000, 0, 0) + attributes(node))
    elif opcode == GETATTR: answer(request, struct.pack('<QII', 1000, 0, 0) + (now or attributes(node)))
    elif opcode == OPEN: answer(request, struct.pack('<QII', node, 2, 0))    # KEEP_CACHE
    elif opcode == READ: answer(request, text(request) if now is None else now)
    elif opcode != 2: os.write(fuse, struct.pack('<IiQ', 16, -38, request[2]))
ended = False
def serve():
    try:
        while True:
            data = os.read(fuse, 1 << 20)
            size, opcode, unique, node = struct.unpack_from('<IIQQ', data)
            request = (size, opcode, unique, node, data[40:])
            if (opcode, node) in by_hand: held.put(request)
            else: respond(request)
    except OSError:
        if not ended: raise    # else nobody is there any more to read from, or to answer
threading.Thread(target=serve, daemon=True).start()

class Later(threading.Thread):
    def __init__(self, what):
        super().__init__(daemon=True)
        self.what = what
        self.start()
    def run(self): self.got = self.what()
    def result(self):
        self.join()
        return self.got
    def until_it_waits_for_a_page(self):
        while open(f'/proc/self/task/{self.native_id}/stat').read().rsplit(')')[-1].split()[0] != 'D': pass
def show(title, data):
    print(title, *[f'{len(list(run))}*{chr(byte) if byte else "NUL"}' for byte, run in itertools.groupby(data)], flush=True)
def make(node, data):
    content[node] = data
    file = os.open(b'%s/%d' % (where, node), os.O_RDONLY)
    os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)    # the parts that are asked for are what is read
    return file
def ask_size(file):
    assert libc.statx(file, b'', 0x3000, 0x200, ctypes.create_string_buffer(256)) == 0    # EMPTY_PATH, FORCE_SYNC

# Two parts are under way, and of a shorter file the later one is answered first: there is nothing there any more.
file = make(2, b'a' * 200000)
by_hand.add((READ, 2))
reader = Later(lambda: os.pread(file, 8192, 0))
part = held.get()
other = Later(lambda: os.pread(file, 4096, 131072))
later_part = held.get()
content[2] = b's' * 10
by_hand.clear()
respond(later_part)
show('the later part:', other.result())
respond(part)
show('the first part:', reader.result())
os.close(file)

# The size as it was arrives while a part is under way that was answered after the file became shorter.
file = make(3, b'a' * 5000)
by_hand.update({(READ, 3), (GETATTR, 3)})
reader = Later(lambda: os.pread(file, 8192, 0))
part = held.get()
asking = Later(lambda: ask_size(file))
size, old = held.get(), attributes(3)
content[3] = b's' * 10
by_hand.clear()
respond(size, old)
asking.join()
respond(part)
show('an old size:', reader.result())
os.close(file)

# The file grows: while its kernel waits for a part that is under way, another program reads where the file ended.
file = make(4, b'o' * 8202)
show('before:', os.pread(file, 4096, 8192))
by_hand.add((READ, 4))
reader = Later(lambda: os.pread(file, 4096, 0))
part = held.get()
by_hand.clear()
content[4] = b'n' * 12288
asking = Later(lambda: ask_size(file))
asking.until_it_waits_for_a_page()
show('growing:', os.pread(file, 4096, 8192))
respond(part)
asking.join()
show('grown:', os.pread(file, 4096, 8192))
show('and what was under way:', reader.result())
os.close(file)
ended = True
libc.umount2(where, 2)
os._exit(0)
)py";

TEST_F(Coherence, ZerosAreNeverReadInWhateverOrderTheAnswersCome) {
  auto said = guest_->run("python3 - <<'EOF'\n" + std::string(forced_order) + "EOF", "root");
  EXPECT_EQ(said.output,
            "the later part:\n"
            "the first part: 10*s\n"
            "an old size: 10*s\n"
            "before: 10*o\n"
            "growing: 10*o\n"
            "grown: 4096*n\n"
            "and what was under way: 4096*n\n");
}

// Four threads read a file all the time while the host makes it shorter and longer in every way it can.
TEST_F(Coherence, ZerosAreNeverReadWhileTheHostWrites) {
  auto folder = guest_->folder("work") / "ends";
  ASSERT_TRUE(fs::create_directory(folder));
  auto path = folder / "file";
  write_in_place(path, std::string(200'000, 'a'));
  Talk talk(*guest_, R"py(
import itertools, os, sys, threading
file = os.open('/mnt/work/ends/file', os.O_RDONLY)
going, reads, wrong = True, 0, []
def read(offset):
    global reads
    while going:
        data = os.pread(file, 400000, offset and max(0, os.fstat(file).st_size - offset))
        reads += 1
        if 0 in data: wrong.append([(byte, len(list(run))) for byte, run in itertools.groupby(data)])
threads = [threading.Thread(target=read, args=[offset]) for offset in (0, 0, 100, 5000)]
for thread in threads: thread.start()
print('reading', flush=True)
sys.stdin.readline()
going = False
for thread in threads: thread.join()
print(len(wrong), 'wrong', wrong[:3], flush=True)
print(reads, flush=True)
)py");
  ASSERT_EQ(talk.hear(), "reading");
  std::mt19937 random(1);
  auto any = [&](std::size_t most) { return 1 + random() % most; };
  for (int edit = 0; edit < 1500; ++edit) {
    const std::string more(any(100'000), static_cast<char>('a' + edit % 26));
    if (edit % 3 == 0) {
      std::ofstream(path) << more;
    } else if (edit % 3 == 1) {
      fs::resize_file(path, any(fs::file_size(path)));
    } else {
      std::ofstream out(path, std::ios::app);
      for (std::size_t at = 0; at < more.size(); at += 3000) out << more.substr(at, 3000) << std::flush;
    }
    // So that the guest is told of some edits before the next.
    if (edit % 10 == 0) guest_->run("true");
  }
  talk.say("end");
  EXPECT_EQ(talk.hear(), "0 wrong []");
  std::printf("[          ] %s reads\n", talk.hear().c_str());
  talk.end();
}

}  // namespace
}  // namespace anchorhold::mounts
