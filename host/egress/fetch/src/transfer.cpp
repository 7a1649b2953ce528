#include "transfer.h"

#include <algorithm>
#include <cstring>
#include <curl/curl.h>
#include <fmt/format.h>
#include <memory>
#include <optional>
#include <sys/socket.h>

#include "base/url.h"
#include "egress/text.h"
#include "page_text.h"

// In this program every stream is connected when it gets it, and none can be. libcurl 7.88 is told so (see
// already_connected) and connects all the same; this is what it calls.
extern "C" int connect(int, const sockaddr*, socklen_t) {
  return 0;
}

namespace anchorhold::egress {
namespace {

using std::chrono::steady_clock;

constexpr std::size_t max_url = 4000, max_head = 64 * 1024, max_reason = 600;
// A field comes with the end of its line.
constexpr std::string_view blank = " \t\r\n";

// "text/html" of "text/html; charset=utf-8", and the charset.
std::pair<std::string, std::string> type_and_charset(std::string_view value) {
  std::string all = lower(value);
  std::string type(trimmed(std::string_view(all).substr(0, all.find(';')), blank));
  auto at = all.find("charset=");
  if (at == std::string::npos) return {type, {}};
  std::string_view charset = std::string_view(all).substr(at + 8);
  charset = trimmed(charset.substr(0, charset.find(';')), blank);
  while (charset.starts_with('"')) charset.remove_prefix(1);
  while (charset.ends_with('"')) charset.remove_suffix(1);
  return {type, std::string(charset)};
}

bool is_html(std::string_view type) {
  return type == "text/html" || type == "application/xhtml+xml";
}

bool is_text(std::string_view type) {
  constexpr std::string_view others[] = {"application/json", "application/xml",      "application/javascript",
                                         "application/yaml", "application/x-yaml",   "application/toml",
                                         "application/sql",  "application/x-ndjson", "application/ld+json"};
  return type.starts_with("text/") || type.ends_with("+json") || type.ends_with("+xml") ||
         std::find(std::begin(others), std::end(others), type) != std::end(others);
}

// One request and what comes of it.
struct Hop {
  const FetchRequest& request;
  std::string url;
  UniqueFd stream;
  long status = 0;
  std::string location{}, reason{};  // reason: of a refusal on the way
  std::string type{}, charset{};
  std::size_t head = 0;
  std::uint64_t received = 0;
  std::optional<Error> fault{};
  std::unique_ptr<PageText> page{};
  std::string plain{};
  bool shortened = false;

  bool redirects() const {
    return (status == 301 || status == 302 || status == 303 || status == 307 || status == 308) &&
           !location.empty();
  }
  bool stop(ErrorCode code, std::string message) {
    if (!fault) fault = Error{code, std::move(message), {}};
    return false;
  }

  bool take_field(std::string_view line) {
    head += line.size();
    if (head > max_head) return stop(ErrorCode::resource_exhausted, "the head of the answer is too large");
    line = trimmed(line, blank);
    if (line.starts_with("HTTP/")) {
      auto space = line.find(' ');
      status =
          space == std::string_view::npos ? 0 : std::atol(std::string(line.substr(space + 1, 3)).c_str());
      location.clear();
      type.clear();
      charset.clear();
      return true;
    }
    auto colon = line.find(':');
    if (colon == std::string_view::npos) return true;
    std::string name = lower(line.substr(0, colon));
    std::string_view value = trimmed(line.substr(colon + 1), blank);
    if (name == "location") location = value;
    if (name == "content-type") std::tie(type, charset) = type_and_charset(value);
    if (name == "x-anchorhold-reason") reason = value.substr(0, max_reason);
    return true;
  }

  bool take_body(std::string_view bytes) {
    if (redirects()) return true;
    received += bytes.size();
    if (received > request.most_bytes)
      return stop(ErrorCode::resource_exhausted,
                  fmt::format("the page is larger than {} bytes", request.most_bytes));
    if (!page && plain.empty()) {
      bool unsaid = type.empty() && bytes.find('\0') == std::string_view::npos;
      if (!unsaid && !is_html(type) && !is_text(type))
        return stop(ErrorCode::invalid_argument,
                    fmt::format("it is no text but {}", type.empty() ? "binary data" : type.substr(0, 100)));
      if (is_html(type)) page = std::make_unique<PageText>(charset, url, request.most_text);
    }
    if (page) {
      page->add(bytes);
      return true;
    }
    std::size_t room = request.most_text - std::min(request.most_text, plain.size());
    if (bytes.size() > room) shortened = true;
    plain += bytes.substr(0, room);
    return true;
  }
};

curl_socket_t open_socket(void* user, curlsocktype, curl_sockaddr*) {
  return static_cast<Hop*>(user)->stream.release();
}

int already_connected(void*, curl_socket_t, curlsocktype) {
  return CURL_SOCKOPT_ALREADY_CONNECTED;
}

std::size_t on_field(char* bytes, std::size_t, std::size_t size, void* user) {
  return static_cast<Hop*>(user)->take_field({bytes, size}) ? size : 0;
}

std::size_t on_body(char* bytes, std::size_t, std::size_t size, void* user) {
  return static_cast<Hop*>(user)->take_body({bytes, size}) ? size : 0;
}

struct Handles {
  CURL* curl = curl_easy_init();
  curl_slist* fields = nullptr;
  Handles() = default;
  Handles(const Handles&) = delete;
  Handles& operator=(const Handles&) = delete;
  ~Handles() {
    curl_slist_free_all(fields);
    curl_easy_cleanup(curl);
  }
};

Error fault_of(CURLcode code, const Hop& hop, std::string_view details) {
  if (!hop.reason.empty() && hop.status >= 400) return {ErrorCode::permission_denied, hop.reason, {}};
  if (hop.fault) return *hop.fault;
  std::string what = fmt::format("{}: {}", hop.url, details.empty() ? curl_easy_strerror(code) : details);
  if (code == CURLE_OPERATION_TIMEDOUT)
    return {ErrorCode::deadline_exceeded, fmt::format("{} did not come in time", hop.url), {}};
  if (code == CURLE_PEER_FAILED_VERIFICATION) return {ErrorCode::failed_precondition, what, {}};
  if (code == CURLE_SSL_CONNECT_ERROR && what.find("access denied") != std::string::npos)
    return {ErrorCode::permission_denied, what, {}};
  return {ErrorCode::unavailable, what, {}};
}

std::optional<Error> run(Hop& hop, const std::string& trust_pem, std::chrono::milliseconds left) {
  Handles handles;
  CURL* curl = handles.curl;
  if (!curl) return Error{ErrorCode::internal, "libcurl did not start", {}};
  char details[CURL_ERROR_SIZE] = {};
  auto set = [curl](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  set(CURLOPT_ERRORBUFFER, details);
  set(CURLOPT_URL, hop.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_NOSIGNAL, 1L);
  // The address is nobody's: the stream leads to the door.
  set(CURLOPT_PROXY, "http://127.0.0.1:1");
  set(CURLOPT_NOPROXY, "");
  set(CURLOPT_OPENSOCKETFUNCTION, &open_socket);
  set(CURLOPT_OPENSOCKETDATA, &hop);
  set(CURLOPT_SOCKOPTFUNCTION, &already_connected);
  curl_blob trust{const_cast<char*>(trust_pem.data()), trust_pem.size(), CURL_BLOB_NOCOPY};
  set(CURLOPT_CAINFO_BLOB, &trust);
  set(CURLOPT_CAINFO, static_cast<char*>(nullptr));
  set(CURLOPT_CAPATH, static_cast<char*>(nullptr));
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
  set(CURLOPT_USERAGENT, "Anchorhold/1.0 (a person's agent)");
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(left.count()));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(left.count()));
  set(CURLOPT_HEADERFUNCTION, &on_field);
  set(CURLOPT_HEADERDATA, &hop);
  set(CURLOPT_WRITEFUNCTION, &on_body);
  set(CURLOPT_WRITEDATA, &hop);
  handles.fields =
      curl_slist_append(handles.fields, "Accept: text/html, text/*, application/json, */*;q=0.1");
  set(CURLOPT_HTTPHEADER, handles.fields);
  CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK || (!hop.reason.empty() && hop.status >= 400)) return fault_of(code, hop, details);
  return std::nullopt;
}

// The whole address, or nothing for what is none of the web or has a name and a password in it.
std::optional<std::string> address(const std::string& base, const std::string& text) {
  if (text.size() > max_url) return std::nullopt;
  auto url = parse_url(text, base);
  if (!url) return std::nullopt;
  return url->text();
}

}  // namespace

Result<FetchedPage> transfer(const FetchOrder& order, std::vector<UniqueFd> streams) {
  auto end = steady_clock::now() + order.request.limit;
  auto url = address({}, order.request.url);
  if (!url)
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} is no address of a page (http:// or https://, without a password)",
                            order.request.url.substr(0, 200)));
  for (auto& stream : streams) {
    auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now());
    Hop hop{.request = order.request, .url = *url, .stream = std::move(stream)};
    std::optional<Error> fault;
    if (left.count() > 0)
      fault = run(hop, order.trust_pem, left);
    else
      fault = Error{ErrorCode::deadline_exceeded, fmt::format("{} did not come in time", *url), {}};
    if (fault) {
      if (*url != order.request.url)
        fault->message = fmt::format("{} (led to by {})", fault->message, order.request.url);
      return tl::unexpected<Error>(std::move(*fault));
    }
    if (!hop.redirects()) {
      if (hop.page) hop.page->finish();
      FetchedPage page;
      page.url = *url;
      page.status = static_cast<unsigned>(hop.status);
      page.type = hop.type;
      page.title = hop.page ? std::string(trimmed(hop.page->title(), blank)) : std::string();
      page.text = hop.page ? hop.page->text() : std::move(hop.plain);
      page.shortened = hop.page ? hop.page->shortened() : hop.shortened;
      return page;
    }
    auto next = address(*url, hop.location);
    if (!next)
      return fail(ErrorCode::permission_denied, fmt::format("{} leads to what is no address of a page: {}",
                                                            *url, hop.location.substr(0, 200)));
    url = std::move(next);
  }
  return fail(ErrorCode::unavailable,
              fmt::format("{} leads on and on: more than {} redirects", order.request.url, max_redirects));
}

}  // namespace anchorhold::egress
