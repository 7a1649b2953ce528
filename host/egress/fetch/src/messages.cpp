#include "messages.h"

#include "egress/json_fields.h"

namespace anchorhold::egress {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_short = 4096;

constexpr std::pair<const char*, ErrorCode> codes[] = {
    {"refused", ErrorCode::permission_denied},       {"unreadable", ErrorCode::invalid_argument},
    {"too_large", ErrorCode::resource_exhausted},    {"time", ErrorCode::deadline_exceeded},
    {"certificate", ErrorCode::failed_precondition}, {"unavailable", ErrorCode::unavailable}};

}  // namespace

std::string encode_order(const FetchOrder& order) {
  return dump({{"url", order.request.url},
               {"most_bytes", order.request.most_bytes},
               {"most_text", order.request.most_text},
               {"limit_ms", static_cast<std::uint64_t>(order.request.limit.count())},
               {"trust", order.trust_pem}});
}

Result<FetchOrder> parse_order(std::string_view text) {
  Json json = parse_object(text);
  FetchOrder order;
  std::uint64_t limit = 0;
  if (!take(json, "url", order.request.url) || !take(json, "most_bytes", order.request.most_bytes) ||
      !take(json, "most_text", order.request.most_text) || !take(json, "limit_ms", limit) ||
      !take(json, "trust", order.trust_pem))
    return fail(ErrorCode::data_loss, "a malformed order");
  order.request.limit = std::chrono::milliseconds(limit);
  return order;
}

std::string encode_answer(const Result<FetchedPage>& page) {
  if (page)
    return dump({{"url", page->url},
                 {"status", page->status},
                 {"type", page->type},
                 {"title", page->title},
                 {"text", page->text},
                 {"shortened", page->shortened}});
  const char* name = "unavailable";
  for (const auto& [each, code] : codes)
    if (code == page.error().code) name = each;
  return dump({{"error", name}, {"message", page.error().message}});
}

Result<FetchedPage> parse_answer(std::string_view text, const FetchRequest& request) {
  Json json = parse_object(text);
  std::string name, message;
  if (take(json, "error", name) && take(json, "message", message) && message.size() <= max_short)
    for (const auto& [each, code] : codes)
      if (name == each) return fail(code, std::move(message));
  FetchedPage page;
  bool whole = take(json, "url", page.url) && take(json, "status", page.status) &&
               take(json, "type", page.type) && take(json, "title", page.title) &&
               take(json, "text", page.text) && take(json, "shortened", page.shortened);
  // Bytes that are no UTF-8 became longer when they were written.
  if (!whole || page.url.size() > 4 * max_short || page.type.size() > max_short ||
      page.title.size() > max_short || page.text.size() > 4 * request.most_text + max_short)
    return fail(ErrorCode::data_loss, "the process that reads pages said what is no answer");
  return page;
}

}  // namespace anchorhold::egress
