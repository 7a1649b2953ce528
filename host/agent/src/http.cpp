#include "http.h"

#include <algorithm>
#include <cstring>
#include <curl/curl.h>
#include <fmt/format.h>
#include <memory>
#include <mutex>

namespace anchorhold::agent {
namespace {

constexpr std::size_t max_header_bytes = 64 << 10;
constexpr long receive_buffer_bytes = 64 << 10;
constexpr std::int64_t max_poll_ms = 1000;

struct EasyEnd {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
struct MultiEnd {
  void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
};

// The list copies its strings; the key among them is wiped before they are freed.
struct HeaderList {
  curl_slist* list = nullptr;
  ~HeaderList() {
    for (curl_slist* item = list; item; item = item->next) wipe(item->data, std::strlen(item->data));
    curl_slist_free_all(list);
  }
  void add(const std::string& header) {
    if (curl_slist* longer = curl_slist_append(list, header.c_str())) list = longer;
  }
};

void start_curl() {
  static std::once_flag once;
  std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
}

struct Transfer {
  const HttpSink& sink;
  HttpHead head;
  std::size_t header_bytes = 0;
  Status consumed;  // what the sink said
  std::chrono::steady_clock::time_point last_byte = std::chrono::steady_clock::now();
};

std::size_t on_header(char* bytes, std::size_t size, std::size_t count, void* user) {
  auto& transfer = *static_cast<Transfer*>(user);
  std::string_view line(bytes, size * count);
  transfer.header_bytes += line.size();
  if (transfer.header_bytes > max_header_bytes) return 0;
  while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
  if (line.starts_with("HTTP/")) {
    transfer.head = {};
    return size * count;
  }
  auto colon = line.find(':');
  if (colon == line.npos) return size * count;
  std::string name(line.substr(0, colon));
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  auto value = line.substr(colon + 1);
  while (value.starts_with(' ')) value.remove_prefix(1);
  transfer.head.headers[std::move(name)] = value;
  return size * count;
}

struct BodyTarget {
  Transfer& transfer;
  CURL* handle;
};

std::size_t on_body(char* bytes, std::size_t size, std::size_t count, void* user) {
  auto& target = *static_cast<BodyTarget*>(user);
  target.transfer.last_byte = std::chrono::steady_clock::now();
  curl_easy_getinfo(target.handle, CURLINFO_RESPONSE_CODE, &target.transfer.head.status);
  target.transfer.consumed =
      target.transfer.sink(target.transfer.head, std::string_view(bytes, size * count));
  return target.transfer.consumed ? size * count : CURL_WRITEFUNC_ERROR;
}

ErrorCode code_of(CURLcode code) {
  switch (code) {
    case CURLE_OPERATION_TIMEDOUT:
      return ErrorCode::deadline_exceeded;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_ISSUER_ERROR:
    case CURLE_SSL_CACERT_BADFILE:
      return ErrorCode::failed_precondition;
    case CURLE_URL_MALFORMAT:
    case CURLE_UNSUPPORTED_PROTOCOL:
      return ErrorCode::invalid_argument;
    case CURLE_OUT_OF_MEMORY:
      return ErrorCode::resource_exhausted;
    default:
      return ErrorCode::unavailable;
  }
}

// curl_multi_poll's wake-up makes a stop immediate; the transfer itself runs on this thread.
Result<CURLcode> perform(CURLM* multi, Transfer& transfer, std::chrono::milliseconds idle_limit,
                         const std::stop_token& stop) {
  std::stop_callback wake(stop, [multi] { curl_multi_wakeup(multi); });
  for (int running = 1; running > 0;) {
    if (stop.stop_requested()) return fail(ErrorCode::cancelled, "stopped");
    if (CURLMcode code = curl_multi_perform(multi, &running); code != CURLM_OK)
      return fail(ErrorCode::internal, fmt::format("the HTTP library failed: {}", curl_multi_strerror(code)));
    if (running == 0) break;
    auto silent = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() -
                                                                        transfer.last_byte);
    if (silent > idle_limit) return CURLE_OPERATION_TIMEDOUT;
    auto wait = std::min<std::int64_t>((idle_limit - silent).count() + 1, max_poll_ms);
    curl_multi_poll(multi, nullptr, 0, static_cast<int>(wait), nullptr);
  }
  int left = 0;
  while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
    if (message->msg == CURLMSG_DONE) return message->data.result;
  }
  return fail(ErrorCode::internal, "the HTTP library lost a transfer");
}

template <typename T>
void set(CURL* handle, CURLoption option, T value) {
  curl_easy_setopt(handle, option, value);
}

void set_up(CURL* handle, const HttpRequest& request, const HeaderList& headers, BodyTarget& body,
            char* error_text) {
  set(handle, CURLOPT_URL, request.url.c_str());
  set(handle, CURLOPT_POST, 1L);
  set(handle, CURLOPT_POSTFIELDS, request.body.c_str());
  set(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(request.body.size()));
  set(handle, CURLOPT_HTTPHEADER, headers.list);
  set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  set(handle, CURLOPT_FOLLOWLOCATION, 0L);
  set(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  set(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  set(handle, CURLOPT_SSLVERSION, static_cast<long>(CURL_SSLVERSION_TLSv1_2));
  set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(request.connect_limit.count()));
  set(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  set(handle, CURLOPT_NOSIGNAL, 1L);
  set(handle, CURLOPT_BUFFERSIZE, receive_buffer_bytes);
  set(handle, CURLOPT_ERRORBUFFER, error_text);
  set(handle, CURLOPT_HEADERFUNCTION, on_header);
  set(handle, CURLOPT_HEADERDATA, &body.transfer);
  set(handle, CURLOPT_WRITEFUNCTION, on_body);
  set(handle, CURLOPT_WRITEDATA, &body);
}

}  // namespace

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host == "::1" || host.starts_with("127.") ||
         host.ends_with(".localhost");
}

Result<Url> model_address(const std::string& text) {
  Url url = ANCHORHOLD_TRY(parse_url(text));
  if (!url.query.empty())
    return fail(ErrorCode::invalid_argument, fmt::format("the address {} has a query", text),
                "Give it as http://HOST:PORT/v1 or https://HOST/v1.");
  while (url.path.ends_with('/')) url.path.pop_back();
  return url;
}

Result<HttpHead> http_post(const HttpRequest& request, const HttpSink& sink, std::stop_token stop) {
  start_curl();
  Url url = ANCHORHOLD_TRY(model_address(request.url));
  std::unique_ptr<CURL, EasyEnd> easy(curl_easy_init());
  std::unique_ptr<CURLM, MultiEnd> multi(curl_multi_init());
  if (!easy || !multi) return fail(ErrorCode::resource_exhausted, "the HTTP library could not be started");
  HeaderList headers;
  for (const auto& header : request.headers) headers.add(header);
  headers.add("Expect:");
  if (request.key && !request.key->empty()) {
    std::string header = request.key_header + std::string(request.key->expose());
    headers.add(header);
    wipe(header);
  }
  Transfer transfer{sink, {}, 0, {}, std::chrono::steady_clock::now()};
  BodyTarget body{transfer, easy.get()};
  char error_text[CURL_ERROR_SIZE] = "";
  set_up(easy.get(), request, headers, body, error_text);
  if (is_loopback(url.host)) set(easy.get(), CURLOPT_PROXY, "");
  curl_multi_add_handle(multi.get(), easy.get());
  auto performed = perform(multi.get(), transfer, request.idle_limit, stop);
  curl_multi_remove_handle(multi.get(), easy.get());
  if (!performed) return fail(performed.error());
  if (!transfer.consumed) return fail(transfer.consumed.error());
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &transfer.head.status);
  if (*performed != CURLE_OK)
    return fail(code_of(*performed), *error_text ? error_text : curl_easy_strerror(*performed));
  return transfer.head;
}

}  // namespace anchorhold::agent
