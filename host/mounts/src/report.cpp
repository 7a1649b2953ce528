#include "mounts/report.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
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
};
static_assert(sizeof(ReportHeader) == 20, "no padding");

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
                      report.lost};
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
  if (kind < 1 || kind > 5)
    return fail(ErrorCode::data_loss, fmt::format("a report is of unknown kind {}", kind));
  if (header.operation_size > max_operation || header.path_size > max_path ||
      header.reason_size > max_reason ||
      sizeof header + header.operation_size + header.path_size + header.reason_size != message.size())
    return fail(ErrorCode::data_loss, "a report's texts do not fit its size");
  auto text = reinterpret_cast<const char*>(message.data()) + sizeof header;
  Report report;
  report.kind = header.kind;
  report.error = header.error;
  report.lost = header.lost;
  report.operation.assign(text, header.operation_size);
  report.path.assign(text + header.operation_size, header.path_size);
  report.reason.assign(text + header.operation_size + header.path_size, header.reason_size);
  return report;
}

void Reporter::send(Report report) {
  report.lost = lost_.exchange(0);
  std::string bytes = encode_report(report);
  for (;;) {
    if (::send(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
    if (errno != EINTR) break;
  }
  lost_ += report.lost + 1;
}

Result<std::optional<Report>> receive_report(int socket) {
  std::vector<std::byte> buffer(max_report_bytes);
  auto received = ANCHORHOLD_TRY(receive_with_descriptors(socket, buffer));
  if (received.size == 0) return std::nullopt;
  if (!received.descriptors.empty()) return fail(ErrorCode::data_loss, "a report came with descriptors");
  return ANCHORHOLD_TRY(parse_report(std::span(buffer).first(received.size)));
}

}  // namespace anchorhold::mounts
