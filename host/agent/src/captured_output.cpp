#include "captured_output.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <span>

#include "text.h"

namespace anchorhold::agent {

CapturedOutput::CapturedOutput(std::filesystem::path file, std::size_t cap, std::uint64_t max_stored)
    : file_(std::move(file)), half_(cap / 2), max_stored_(max_stored) {}

void CapturedOutput::add(std::string_view bytes) {
  total_ += bytes.size();
  if (!spilled_) {
    head_ += bytes;
    if (head_.size() <= half_ * 2) return;
    spilled_ = true;
    // A file of the same name is left from a run that was killed; its call was never finished.
    fd_ = UniqueFd(open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd_) trouble_ = fmt::format("it could not be kept: {}", std::strerror(errno));
    store(head_);
    tail_ = head_.substr(half_);
    head_.resize(half_);
  } else {
    store(bytes);
    tail_ += bytes;
  }
  if (tail_.size() > half_ * 4) tail_.erase(0, tail_.size() - half_);
}

void CapturedOutput::store(std::string_view bytes) {
  if (!trouble_.empty()) return;
  if (bytes.size() > max_stored_ - stored_) {
    bytes = bytes.substr(0, max_stored_ - stored_);
    trouble_ = fmt::format("only its first {} bytes are kept", grouped(max_stored_));
  }
  auto written = write_all(fd_.get(), std::as_bytes(std::span(bytes)));
  if (written) {
    stored_ += bytes.size();
  } else {
    trouble_ = fmt::format("only its first {} bytes are kept: {}", grouped(stored_), written.error().message);
  }
}

std::string CapturedOutput::text(std::uint64_t call) const {
  if (!spilled_) return clean_utf8(head_);
  std::string_view head = prefix_at_boundary(head_, half_);
  std::string_view tail = suffix_at_boundary(tail_, std::min<std::uint64_t>(half_, total_ - half_));
  std::string note = fmt::format("[{} of {} bytes left out here", grouped(total_ - head.size() - tail.size()),
                                 grouped(total_));
  if (stored_ > 0)
    note += fmt::format("; read more with read_output, call {}, from offset {}", call, head.size());
  if (!trouble_.empty()) note += fmt::format(" ({})", trouble_);
  return fmt::format("{}\n{}]\n{}", clean_utf8(head), note, clean_utf8(tail));
}

}  // namespace anchorhold::agent
