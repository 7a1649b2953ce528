// What programs of the host change in granted folders while a guest uses them: what the guest reads, what it
// remembers, and what its inotify watchers are told.
#include "coherence.h"

#include <array>
#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

std::string sha256_hex(const std::string& data) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(data.data()), data.size(), digest.data());
  return fmt::format("{:02x}", fmt::join(digest, ""));
}

constexpr const char* watcher = R"py(
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(0)
folder = sys.stdin.readline().strip()
known = os.listdir(folder)
mask = 0x2 | 0x4 | 0x40 | 0x80 | 0x100 | 0x200
assert libc.inotify_add_watch(fd, folder.encode(), mask) >= 0
names = {0x2: 'modify', 0x4: 'attrib', 0x40: 'from', 0x80: 'to', 0x100: 'create', 0x200: 'delete'}
print('watching', flush=True)
while True:
    data = os.read(fd, 65536)
    while data:
        watch, bits, cookie, size = struct.unpack_from('iIII', data)
        name = data[16:16 + size].rstrip(b'\0').decode()
        data = data[16 + size:]
        if bits & 0x8000: sys.exit(0)
        print(names[bits & 0xfff] + ('/' if bits & 0x40000000 else ''), name, flush=True)
        if name == 'end' and bits & 0x100: sys.exit(0)
)py";

TEST_F(Coherence, InotifyInTheGuestTellsOfTheHost) {
  for (const char* share : {"work", "read", "keep"}) {
    SCOPED_TRACE(share);
    auto folder = guest_->folder(share) / "watched";
    ASSERT_TRUE(fs::create_directory(folder));
    write_in_place(folder / "old", "old");
    Talk talk(*guest_, watcher);
    ASSERT_EQ(talk.ask(std::string("/mnt/") + share + "/watched"), "watching");
    write_in_place(folder / "new", "text");
    EXPECT_TRUE(talk.hear_until("create new"));
    write_in_place(folder / "new", "more text");
    EXPECT_TRUE(talk.hear_until("modify new"));
    fs::permissions(folder / "new", fs::perms::owner_all);
    EXPECT_TRUE(talk.hear_until("attrib new"));
    fs::rename(folder / "new", folder / "other");
    EXPECT_TRUE(talk.hear_until("from new"));
    EXPECT_TRUE(talk.hear_until("to other"));
    EXPECT_EQ(guest_->run(std::string("cat /mnt/") + share + "/watched/other").output, "more text");
    replace(folder / "other", "replaced");
    EXPECT_TRUE(talk.hear_until("to other"));
    EXPECT_EQ(guest_->run(std::string("cat /mnt/") + share + "/watched/other").output, "replaced");
    fs::remove(folder / "other");
    EXPECT_TRUE(talk.hear_until("delete other"));
    fs::remove(folder / "old");
    EXPECT_TRUE(talk.hear_until("delete old"));
    fs::create_directory(folder / "folder");
    EXPECT_TRUE(talk.hear_until("create/ folder"));
    fs::create_symlink("nowhere", folder / "link");
    EXPECT_TRUE(talk.hear_until("create link"));
    fs::rename(folder / "folder", folder / "moved");
    EXPECT_TRUE(talk.hear_until("to/ moved"));
    fs::remove(folder / "moved");
    EXPECT_TRUE(talk.hear_until("delete/ moved"));
    EXPECT_EQ(guest_->run(std::string("ls /mnt/") + share + "/watched").output, "link\n");
    // What is hidden is not told.
    write_in_place(folder / ".env", "SECRET=1");
    write_in_place(folder / "end", "");
    EXPECT_EQ(talk.hear(), "create end");
    talk.end();
  }
}

// The guest's own changes come once: as the guest's kernel tells them.
TEST_F(Coherence, OwnChangesAreNotToldAgain) {
  auto folder = guest_->folder("work") / "own";
  ASSERT_TRUE(fs::create_directory(folder));
  Talk talk(*guest_, watcher);
  ASSERT_EQ(talk.ask("/mnt/work/own"), "watching");
  EXPECT_EQ(
      guest_->run("cd /mnt/work/own; mkdir d; echo text > file; mv file moved; rm moved; rmdir d").output,
      "");
  for (const char* line :
       {"create/ d", "create file", "modify file", "from file", "to moved", "delete moved", "delete/ d"})
    EXPECT_EQ(talk.hear(), line);
  // A change of the host's comes after them all, so that nothing was told in between.
  write_in_place(folder / "end", "");
  EXPECT_EQ(talk.hear(), "create end");
  talk.end();
}

// Each edit by a host program meets a guest that has the file open, mapped or read by half. Afterwards the
// guest sees what is there now by its path, and through what it held the same file as it is now, or what the
// file was when its name went.
TEST_F(Coherence, AThousandEditsAreSeenAsTheyAre) {
  auto path = guest_->folder("work") / "edited";
  Talk talk(*guest_, R"py(
import hashlib, mmap, os, sys
path = '/mnt/work/edited'
def digest(data): return hashlib.sha256(data).hexdigest()
for line in sys.stdin:
    word = line.split()
    if word[0] == 'hold':
        how = word[1]
        held = open(path, 'rb', buffering=0)
        if how == 'mapped': pages = mmap.mmap(held.fileno(), 0, prot=mmap.PROT_READ); pages[:]
        if how == 'half': assert len(held.read(int(word[2]))) == int(word[2])
        if how == 'open': held.read(100)
        print('held', flush=True)
        continue
    # look FROM SIZE: what is held from there on, so many bytes of it; of a mapping only what is in the file
    start, size = int(word[1]), int(word[2])
    try:
        with open(path, 'rb') as file: now = '%s %d' % (digest(file.read()), os.stat(path).st_mtime_ns)
    except FileNotFoundError: now = 'none 0'
    data = pages[start:start + size] if how == 'mapped' else os.pread(held.fileno(), 1 << 20, start)
    print(now, digest(data), flush=True)
)py");
  std::string text(1000, '0');
  write_in_place(path, text);
  std::uint32_t random = 1;
  int second_looks = 0;
  for (int edit = 0; edit < 1000 && !HasFailure(); ++edit) {
    random = random * 1664525 + 1013904223;
    const char* how = std::array{"open", "mapped", "half"}[static_cast<std::size_t>(edit / 7 % 3)];
    const std::string before = text, more(1 + random % 20000, static_cast<char>('a' + edit % 26));
    std::size_t half = before.size() / 2;
    ASSERT_EQ(talk.ask(fmt::format("hold {} {}", how, half)), "held");
    bool same_file = true, there = true;
    switch (edit % 7) {
      case 0: {  // grow
        std::ofstream(path, std::ios::app) << more;
        text += more;
        break;
      }
      case 1:  // shrink
        text.resize(text.size() / 2 + 1);
        fs::resize_file(path, text.size());
        break;
      case 2:  // something else, of any size
        write_in_place(path, text = more);
        break;
      case 3:  // of the same size, so that only times tell
        write_in_place(path, text = std::string(text.size(), static_cast<char>('A' + edit % 26)));
        break;
      case 4:
        replace(path, text = more);
        same_file = false;
        break;
      case 5:
        fs::remove(path);
        same_file = there = false;
        break;
      default: {  // touch
        const timespec then[2] = {{1'000'000'000, 0}, {1'000'000'000 + edit, 42}};
        ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), then, 0), 0);
      }
    }
    const std::string& held = same_file ? text : before;
    std::size_t from = std::string_view(how) == "half" ? std::min(half, held.size()) : 0;
    std::size_t size = std::min(held.size(), before.size()) - from;
    const std::string look = fmt::format("look {} {}", from, size);
    auto expect_seen = [&] {
      struct stat info {};
      EXPECT_EQ(stat(path.c_str(), &info) == 0, there);
      auto mtime = info.st_mtim.tv_sec * 1'000'000'000 + info.st_mtim.tv_nsec;
      auto through_held = std::string_view(how) == "mapped" ? held.substr(0, size) : held.substr(from);
      auto wanted =
          fmt::format("{} {} {}", there ? sha256_hex(text) : "none", mtime, sha256_hex(through_held));
      // The guest is told a moment later; until then it may see what was.
      for (std::string seen = talk.ask(look); seen != wanted && !HasFailure(); seen = talk.ask(look)) {
        ++second_looks;
        ASSERT_NE(seen, "(end)");
      }
    };
    expect_seen();
    if (there) continue;
    write_in_place(path, text = more);
    there = true;
    expect_seen();
  }
  talk.end();
  std::printf("[          ] %d looks came before the guest knew of the edit\n", second_looks);
}

// Held open, mapped and half read while the host edits. The program waits for what is to be seen in the end;
// until it is told, it may see what it has read before, and the new of what it has not, but never what was in
// neither, and never zeros.
TEST_F(Coherence, HeldFilesAreSeenOldOrNew) {
  auto folder = guest_->folder("work") / "held";
  ASSERT_TRUE(fs::create_directory(folder));
  const std::string old(200'000, 'a');
  for (const char* name : {"grow", "shrink", "rewrite", "replace", "delete", "touch"})
    write_in_place(folder / name, old);
  Talk talk(*guest_, R"py(
import itertools, mmap, os, sys
old = b'a' * 200000
def runs(data): return [(byte, len(list(run))) for byte, run in itertools.groupby(data)]
held, maps = {}, {}
for name in ('grow', 'shrink', 'rewrite', 'replace', 'delete', 'touch'):
    file = held[name] = open('/mnt/work/held/' + name, 'rb', buffering=0)
    assert file.read(100000) == old[:100000]
    maps[name] = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    assert maps[name][:] == old[:4096]
def whole(name):
    return os.pread(held[name].fileno(), 300000, 0)
def wait(name, wanted):
    while True:
        text = whole(name)
        if text == wanted: return
        assert not text.strip(old[:1] + wanted[-1:]), (name, runs(text))
print('ready', flush=True)
for line in sys.stdin:
    name = line.strip()
    if name == 'grow': wait(name, old + b'g' * 50000)
    if name == 'shrink':
        wait(name, b's' * 10)
        assert os.pread(held[name].fileno(), 1000, 50000) == b'' and os.stat('/mnt/work/held/shrink').st_size == 10
        while maps[name][:10] != b's' * 10: pass
        assert maps[name][10:] == b'\0' * 4086
    if name == 'rewrite':
        wait(name, b'r' * 200000)
        while maps[name][:] != b'r' * 4096: pass
    if name == 'replace':
        assert whole(name) == old and held[name].read() == old[100000:]
        now = open('/mnt/work/held/replace', 'rb').read()
        assert now == b'new', runs(now)
        assert maps[name][:] == old[:4096]
    if name == 'delete':
        assert whole(name) == old and held[name].read() == old[100000:]
        while os.path.exists('/mnt/work/held/delete'): pass
        assert whole(name) == old and maps[name][:] == old[:4096]
    if name == 'touch':
        while os.fstat(held[name].fileno()).st_mtime != 1000000000: pass
        assert whole(name) == old
    print('seen', flush=True)
)py");
  ASSERT_EQ(talk.hear(), "ready");
  {
    std::ofstream out(folder / "grow", std::ios::app);
    out << std::string(50'000, 'g');
  }
  EXPECT_EQ(talk.ask("grow"), "seen");
  std::ofstream(folder / "shrink") << std::string(10, 's');
  EXPECT_EQ(talk.ask("shrink"), "seen");
  write_in_place(folder / "rewrite", std::string(200'000, 'r'));
  EXPECT_EQ(talk.ask("rewrite"), "seen");
  replace(folder / "replace", "new");
  EXPECT_EQ(talk.ask("replace"), "seen");
  fs::remove(folder / "delete");
  EXPECT_EQ(talk.ask("delete"), "seen");
  const timespec then[2] = {{1000000000, 0}, {1000000000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, (folder / "touch").c_str(), then, 0), 0);
  EXPECT_EQ(talk.ask("touch"), "seen");
  talk.end();
}

// Names that were moved, replaced by another kind, and looked for in vain before.
TEST_F(Coherence, RememberedNamesAreForgotten) {
  auto folder = guest_->folder("work") / "names";
  fs::create_directories(folder / "a/b");
  write_in_place(folder / "a/b/file", "first");
  Talk talk(*guest_, R"py(
import os, sys
os.chdir('/mnt/work/names/a/b')
for line in sys.stdin:
    path, wanted = line.split()
    while True:
        try: text = open('/mnt/work/names/' + path).read()
        except OSError as error: text = type(error).__name__
        if text == wanted: break
    print('seen', os.getcwd(), flush=True)
)py");
  const std::string seen = "seen /mnt/work/names/";
  EXPECT_EQ(talk.ask("a/b/file first"), seen + "a/b");
  EXPECT_EQ(talk.ask("c/b/file FileNotFoundError"), seen + "a/b");
  fs::rename(folder / "a", folder / "c");
  EXPECT_EQ(talk.ask("c/b/file first"), seen + "c/b");
  EXPECT_EQ(talk.ask("a/b/file FileNotFoundError"), seen + "c/b");
  write_in_place(folder / "a", "a file now");
  EXPECT_EQ(talk.ask("a/b/file NotADirectoryError"), seen + "c/b");
  fs::remove(folder / "a");
  fs::create_directories(folder / "a/b");
  write_in_place(folder / "a/b/file", "second");
  EXPECT_EQ(talk.ask("a/b/file second"), seen + "c/b");
  EXPECT_EQ(talk.ask("c/b/file first"), seen + "c/b");
  talk.end();
}

// The person's office program saves while the guest computes.
TEST_F(Coherence, ASpreadsheetThatIsSavedAllTheTimeIsAlwaysWhole) {
  auto said = guest_->run(
      "mkdir /mnt/work/sheets && cd /mnt/work/sheets && python3 -c \"\n"
      "import openpyxl\n"
      "for version in range(5):\n"
      "    book = openpyxl.Workbook(); sheet = book.active\n"
      "    for row in range(50): sheet.append([version] * 5 + ['x' * (version * 37 + row)])\n"
      "    book.save(f'{version}.xlsx')\n\"");
  ASSERT_EQ(said.status, 0) << said.output;
  auto folder = guest_->folder("work") / "sheets";
  fs::copy_file(folder / "0.xlsx", folder / "sheet.xlsx");
  std::jthread person([&](std::stop_token stop) {
    for (int version = 1; !stop.stop_requested(); ++version) {
      fs::copy_file(folder / (std::to_string(version % 5) + ".xlsx"), folder / ".~sheet.tmp");
      fs::rename(folder / ".~sheet.tmp", folder / "sheet.xlsx");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  });
  said = guest_->run(R"sh(cd /mnt/work/sheets && python3 -c "
import openpyxl
seen = set()
for i in range(60):
    rows = [[cell.value for cell in row] for row in openpyxl.load_workbook('sheet.xlsx').active.iter_rows()]
    version = rows[0][0]
    assert rows == [[version] * 5 + ['x' * (version * 37 + row) or None] for row in range(50)], rows[:2]
    seen.add(version)
print(len(seen) > 1)
")sh");
  EXPECT_EQ(said.output, "True\n");
}

}  // namespace
}  // namespace anchorhold::mounts
