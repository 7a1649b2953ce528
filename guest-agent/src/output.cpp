#include "output.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <unistd.h>

namespace anchorhold::guest {

Output::~Output() {
  *alive_ = false;
}

Status Output::open(UniqueFd fd, std::function<void()> changed) {
  ANCHORHOLD_CHECK(set_nonblocking(fd.get()));
  fd_ = std::move(fd);
  changed_ = std::move(changed);
  readable_ = true;
  if (tail_bytes_ > 0) pump();
  return {};
}

// Watched only while it is empty and somebody waits. A pipe tells of every write to it, and a command that
// floods makes thousands of them in the time that one chunk takes.
void Output::arm() {
  if (readable_ || !fd_ || watch_) return;
  auto watch = loop_.watch(fd_.get(), vsock::ready::readable, [this](std::uint32_t) { on_events(); });
  if (watch) watch_ = std::move(*watch);
}

void Output::on_events() {
  watch_ = {};
  readable_ = true;
  pump();
}

bool Output::drained() const {
  if (ended_ || !fd_) return true;
  // Not FIONREAD: what was written to a terminal is handed over by a worker of the kernel, and only reading
  // and polling wait for that.
  pollfd entry{.fd = fd_.get(), .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) <= 0 || (entry.revents & POLLIN) == 0;
}

std::string Output::read_chunk() {
  std::string data;
  if (!fd_) return data;
  data.resize(chunk_bytes);
  std::size_t size = 0;
  while (size < chunk_bytes) {
    ssize_t got = read(fd_.get(), data.data() + size, chunk_bytes - size);
    if (got > 0) {
      size += static_cast<std::size_t>(got);
      continue;
    }
    if (got < 0 && errno == EINTR) continue;
    readable_ = false;
    // A terminal whose last user is gone reports EIO.
    if (got == 0 || errno != EAGAIN) end_input();
    break;
  }
  data.resize(size);
  total_ += size;
  return data;
}

void Output::end_input() {
  watch_ = {};
  fd_.reset();
  readable_ = false;
  ended_ = true;
}

void Output::pump() {
  auto alive = alive_;
  bool had_end = ended_;
  std::uint64_t before = total_;
  if (tail_bytes_ > 0) keep();
  // Serving may detach readers, so look for one at a time.
  for (bool progress = true; progress && *alive;) {
    progress = false;
    for (auto& attached : readers_) {
      if (!attached.waiting) continue;
      if (serve(attached)) {
        progress = true;
        break;
      }
    }
  }
  if (!*alive) return;
  bool wanted = tail_bytes_ > 0;
  for (const auto& attached : readers_) wanted = wanted || attached.waiting;
  if (wanted) arm();
  if (changed_ && (total_ != before || ended_ != had_end)) changed_();
}

// Reads what there is, but not for ever: other descriptors have their turn in between.
void Output::keep() {
  constexpr int chunks_per_turn = 4;
  for (int i = 0; i < chunks_per_turn && readable_; ++i) held_ += read_chunk();
  if (held_.size() > tail_bytes_ + chunk_bytes) {
    std::size_t excess = held_.size() - tail_bytes_;
    held_.erase(0, excess);
    held_start_ += excess;
  }
  if (readable_ && !again_posted_) {
    again_posted_ = true;
    loop_.post([this, alive = alive_] {
      if (!*alive) return;
      again_posted_ = false;
      pump();
    });
  }
}

// True when the reader was given something, after which `attached` may be gone.
bool Output::serve(Attached& attached) {
  Reader* reader = attached.reader;
  if (tail_bytes_ == 0) {
    std::string data = readable_ ? read_chunk() : std::string();
    if (!data.empty()) {
      attached.waiting = false;
      std::uint64_t offset = total_ - data.size();
      bool more = readable_ && data.size() == chunk_bytes;
      reader->chunk(std::move(data), offset, more);
      return true;
    }
    if (!ended_) return false;
    detach(reader);
    reader->end(true, total_);
    return true;
  }
  attached.offset = std::max(attached.offset, held_start_);
  std::uint64_t position = attached.offset - held_start_;
  if (position < held_.size()) {
    std::string data = held_.substr(position, chunk_bytes);
    std::uint64_t offset = attached.offset;
    attached.offset += data.size();
    attached.waiting = false;
    bool more = attached.offset < total_ && data.size() == chunk_bytes;
    reader->chunk(std::move(data), offset, more);
    return true;
  }
  if (attached.follow && !ended_) return false;
  std::uint64_t offset = attached.offset;
  detach(reader);
  reader->end(ended_, offset);
  return true;
}

Status Output::attach(Reader* reader, std::uint64_t from_offset, bool follow) {
  if (tail_bytes_ == 0 && !readers_.empty())
    return fail(ErrorCode::already_exists, "somebody else reads this output already");
  readers_.push_back({reader, from_offset, follow});
  return {};
}

Output::Attached* Output::find(Reader* reader) {
  for (auto& attached : readers_)
    if (attached.reader == reader) return &attached;
  return nullptr;
}

void Output::detach(Reader* reader) {
  std::erase_if(readers_, [reader](const Attached& attached) { return attached.reader == reader; });
}

void Output::ready(Reader* reader) {
  Attached* attached = find(reader);
  if (attached == nullptr) return;
  attached->waiting = true;
  pump();
}

void Output::settle() {
  if (!ended_ && drained()) close();
}

void Output::close() {
  if (ended_) return;
  end_input();
  pump();
}

}  // namespace anchorhold::guest
