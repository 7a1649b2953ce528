#include "mounts/report.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <vector>

namespace anchorhold::mounts {
namespace {

constexpr std::uint32_t report_magic = 0x41485231;  // "AHR1"

struct ReportHeader {
  std::uint32_t magic;
  ReportKind kind;
  std::uint16_t operation_size;
  std::uint16_t path_size;
  std::uint16_t reason_size;
  std::int32_t error;
  std::uint32_t lost;
  std::uint32_t reserved;
  std::uint64_t question;
};
static_assert(sizeof(ReportHeader) == 32, "no padding");

constexpr std::uint32_t answer_magic = 0x41484132;  // "AHA2"

struct AnswerMessage {
  std::uint32_t magic;
  Verdict verdict;
  std::uint64_t question;
};
static_assert(sizeof(AnswerMessage) == answer_bytes, "no padding");

constexpr std::size_t max_operation = 64;
constexpr std::size_t max_path = 4096;
constexpr std::size_t max_reason = 1024;
static_assert(sizeof(ReportHeader) + max_operation + max_path + max_reason <= max_report_bytes);

}  // namespace

std::string_view to_string(ReportKind kind) {
  switch (kind) {
    case ReportKind::ready:
      return "ready";
    case ReportKind::refused:
      return "refused";
    case ReportKind::violation:
      return "violation";
    case ReportKind::warning:
      return "warning";
    case ReportKind::fatal:
      return "fatal";
    case ReportKind::question:
      return "question";
  }
  return "unknown";
}

std::string encode_report(const Report& report) {
  auto operation = std::string_view(report.operation).substr(0, max_operation);
  auto path = std::string_view(report.path).substr(0, max_path);
  auto reason = std::string_view(report.reason).substr(0, max_reason);
  ReportHeader header{report_magic,
                      report.kind,
                      static_cast<std::uint16_t>(operation.size()),
                      static_cast<std::uint16_t>(path.size()),
                      static_cast<std::uint16_t>(reason.size()),
                      report.error,
                      report.lost,
                      0,
                      report.question};
  std::string bytes(sizeof header, '\0');
  std::memcpy(bytes.data(), &header, sizeof header);
  bytes.append(operation).append(path).append(reason);
  return bytes;
}

Result<Report> parse_report(std::span<const std::byte> message) {
  ReportHeader header;
  if (message.size() < sizeof header) return fail(ErrorCode::data_loss, "a report is too short");
  std::memcpy(&header, message.data(), sizeof header);
  if (header.magic != report_magic) return fail(ErrorCode::data_loss, "a report has a wrong magic number");
  auto kind = static_cast<std::uint16_t>(header.kind);
  if (kind < 1 || kind > 6)
    return fail(ErrorCode::data_loss, fmt::format("a report is of unknown kind {}", kind));
  if (header.reserved != 0 || (header.kind == ReportKind::question) != (header.question != 0))
    return fail(ErrorCode::data_loss, "a report is half a question");
  if (header.operation_size > max_operation || header.path_size > max_path ||
      header.reason_size > max_reason ||
      sizeof header + header.operation_size + header.path_size + header.reason_size != message.size())
    return fail(ErrorCode::data_loss, "a report's texts do not fit its size");
  auto text = reinterpret_cast<const char*>(message.data()) + sizeof header;
  Report report;
  report.kind = header.kind;
  report.error = header.error;
  report.lost = header.lost;
  report.question = header.question;
  report.operation.assign(text, header.operation_size);
  report.path.assign(text + header.operation_size, header.path_size);
  report.reason.assign(text + header.operation_size + header.path_size, header.reason_size);
  return report;
}

std::string encode_answer(const Answered& answer) {
  AnswerMessage message{answer_magic, answer.verdict, answer.question};
  std::string bytes(sizeof message, '\0');
  std::memcpy(bytes.data(), &message, sizeof message);
  return bytes;
}

Result<Answered> parse_answer(std::span<const std::byte> bytes) {
  AnswerMessage message;
  if (bytes.size() != sizeof message) return fail(ErrorCode::data_loss, "an answer is of the wrong size");
  std::memcpy(&message, bytes.data(), sizeof message);
  if (message.magic != answer_magic || message.verdict > Verdict::allow_for_session)
    return fail(ErrorCode::data_loss, "an answer is none");
  return Answered{message.question, message.verdict};
}

bool Reporter::send(Report report) {
  report.lost = lost_.exchange(0);
  std::string bytes = encode_report(report);
  for (;;) {
    if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    if (errno != EINTR) break;
  }
  lost_ += report.lost + 1;
  return false;
}

Verdict Reporter::wait_for_answer(std::uint64_t question, std::chrono::milliseconds limit) {
  auto until = std::chrono::steady_clock::now() + limit;
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    if (left <= std::chrono::milliseconds(0)) return Verdict::deny;
    pollfd entry{socket_.get(), POLLIN, 0};
    int ready = poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left.count(), 1 << 30)));
    if (ready < 0 && errno != EINTR) return Verdict::deny;
    if (ready <= 0) continue;
    std::byte bytes[answer_bytes + 1];
    ssize_t size = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size <= 0) return Verdict::deny;
    auto answer = parse_answer(std::span(bytes).first(static_cast<std::size_t>(size)));
    if (answer && answer->question == question) return answer->verdict;
    if (answer && answer->question == 0) return Verdict::deny;
    // An answer to a question that nobody asks any more.
  }
}

Result<std::optional<Report>> receive_report(int socket) {
  std::vector<std::byte> buffer(max_report_bytes);
  auto received = ANCHORHOLD_TRY(receive_with_descriptors(socket, buffer));
  if (received.size == 0) return std::nullopt;
  if (!received.descriptors.empty()) return fail(ErrorCode::data_loss, "a report came with descriptors");
  return ANCHORHOLD_TRY(parse_report(std::span(buffer).first(received.size)));
}

}  // namespace anchorhold::mounts
