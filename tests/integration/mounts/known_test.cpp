// What the guest's kernel does not ask for again (images/kernel/fuse_known_answers.patch, and listings that
// it keeps) is as it would be if it had asked.
#include <fmt/format.h>
#include <set>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "coherence.h"

namespace anchorhold::mounts {
namespace {

namespace fs = std::filesystem;

// The host and the guest make, rename and remove names while another program of the guest lists all the time.
TEST_F(Coherence, ListingsAreOfWhatIsThere) {
  auto folder = guest_->folder("work") / "listed";
  ASSERT_TRUE(fs::create_directory(folder));
  Talk talk(*guest_, R"py(
import os, sys, threading
os.chdir('/mnt/work/listed')
def list_always():
    while True: os.listdir('.')
threading.Thread(target=list_always, daemon=True).start()
def check(wanted, what):
    seen = set(os.listdir('.'))
    if seen != wanted: sys.exit(print(what, 'too many:', seen - wanted, 'too few:', wanted - seen))
for line in sys.stdin:
    number, *names = line.split()
    wanted = set(names)
    while set(os.listdir('.')) != wanted: pass
    own, moved = 'guest' + number, 'moved' + number
    open(own, 'w').close()
    check(wanted | {own}, 'made')
    os.rename(own, moved)
    check(wanted | {moved}, 'renamed')
    os.remove(moved)
    check(wanted, 'removed')
    print('seen', flush=True)
)py");
  std::set<std::string> there;
  std::uint32_t random = 7;
  for (int change = 0; change < 150 && !HasFailure(); ++change) {
    random = random * 1664525 + 1013904223;
    // Up to 400 names, so that a listing is of several answers.
    for (std::uint32_t i = 0; i <= random % 20; ++i) {
      std::string name = fmt::format("{:0>60}", change * 20 + static_cast<int>(i));
      write_in_place(folder / name, "");
      there.insert(name);
    }
    if (there.size() > 400 || random % 3 == 0) {
      std::string moved = *there.begin() + "m";
      fs::rename(folder / *there.begin(), folder / moved);
      there.erase(there.begin());
      there.insert(moved);
    }
    while (there.size() > 400 || (random % 5 == 0 && there.size() > 1)) {
      fs::remove(folder / *there.begin());
      there.erase(there.begin());
    }
    ASSERT_EQ(talk.ask(fmt::format("{} {}", change, fmt::join(there, " "))), "seen");
  }
  talk.end();
}

// A file that must not be there yet is made without being looked for.
TEST_F(Coherence, NothingIsMadeWhereSomethingIs) {
  for (const char* share : {"work", "keep", "read"}) {
    SCOPED_TRACE(share);
    auto folder = guest_->folder(share) / "taken";
    fs::create_directories(folder / "folder");
    for (const char* name : {"file", "known"}) write_in_place(folder / name, "the person's");
    fs::create_symlink("nowhere", folder / "link");
    write_in_place(folder / ".env", "SECRET=1");
    ASSERT_EQ(setxattr((folder / "file").c_str(), "user.note", "kept", 4, 0), 0);
    auto said = guest_->run(fmt::format(R"sh(cd /mnt/{}/taken && cat known && python3 -c "
import errno, os
def made(name, flags=os.O_CREAT | os.O_EXCL | os.O_WRONLY):
    try: os.close(os.open(name, flags, 0o600)); return 'made'
    except OSError as error: return errno.errorcode[error.errno]
print()
print(*(made(name) for name in ('file', 'known', 'link', 'folder', '.env', 'new', 'new')))
print(*(made(name, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_TRUNC) for name in ('file', 'folder', 'again', 'again')))
def attribute(name, of):
    try: return os.getxattr(of, name).decode()
    except OSError as error: return errno.errorcode[error.errno]
print(*(attribute(name, 'file') for name in
        ('user.note', 'user.none', 'security.capability', 'system.posix_acl_access')))
")sh",
                                        share));
    bool may = std::string_view(share) != "read";
    EXPECT_EQ(said.output, fmt::format("the person's\nEEXIST EEXIST EEXIST EEXIST {0}\n{1}\n"
                                       "kept ENODATA ENOTSUP ENOTSUP\n",
                                       may ? "EACCES made EEXIST" : "EROFS EROFS EROFS",
                                       may ? "EEXIST EEXIST made EEXIST" : "EEXIST EEXIST EROFS EROFS"));
    for (const char* name : {"file", "known"}) {
      auto text = read_file(folder / name, 100);
      EXPECT_TRUE(text && *text == "the person's") << name;
    }
  }
}

// The guest's kernel believes that a folder's owner and mode stay when names in it change: it is told where
// the host changes them.
TEST_F(Coherence, AFoldersModeIsTheOneThatTheHostGaveIt) {
  auto folder = guest_->folder("work") / "moded";
  ASSERT_TRUE(fs::create_directory(folder));
  Talk talk(*guest_, R"py(
import os, sys
os.chdir('/mnt/work/moded')
number = 0
for line in sys.stdin:
    while oct(os.stat('.').st_mode & 0o777) != line.strip():
        number += 1
        os.close(os.open(str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        os.remove(str(number))
    print('seen', flush=True)
)py");
  for (int change = 0; change < 40 && !HasFailure(); ++change) {
    auto mode = static_cast<mode_t>(0700 | (change * 13) % 64);
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_EQ(talk.ask(fmt::format("0o{:o}", mode)), "seen");
  }
  talk.end();
}

}  // namespace
}  // namespace anchorhold::mounts
