#include "credential_probe.h"

#include <chrono>
#include <cstring>
#include <curl/curl.h>
#include <fmt/format.h>
#include <memory>

#include "base/url.h"
#include "egress/provenance.h"
#include "egress/sigv4.h"

namespace anchorhold::cli {
namespace {

using vault::Kind;

constexpr long limit_ms = 30'000;

struct EasyEnd {
  void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
};
// The list copies its strings; they are wiped before they are freed.
struct HeaderList {
  curl_slist* list = nullptr;
  ~HeaderList() {
    for (curl_slist* item = list; item; item = item->next) wipe(item->data, std::strlen(item->data));
    curl_slist_free_all(list);
  }
  void add(std::string header) {
    if (curl_slist* longer = curl_slist_append(list, header.c_str())) list = longer;
    wipe(header);
  }
};

std::size_t read_over(char*, std::size_t size, std::size_t count, void*) {
  return size * count;
}

Status add_signature(HeaderList& headers, const ProbeTarget& target, const vault::Credential& credential,
                     std::string_view secret) {
  if (credential.region.empty() || credential.service.empty())
    return fail(ErrorCode::failed_precondition,
                fmt::format("it is not known for which region and service {} signs", credential.name),
                "add it with --region and --service, or try it from a guest");
  auto end = secret.find('\n');
  std::string time = egress::sigv4_time(std::chrono::system_clock::now());
  egress::SigV4Scope scope{time.substr(0, 8), credential.region, credential.service};
  egress::SigV4Key key{credential.user, {}, {}};
  if (end != std::string_view::npos) key.session_token = secret.substr(end + 1);
  key.signing_key = egress::sigv4_signing_key(secret.substr(0, end), scope).expose();
  auto parsed =
      egress::parse_request_head(fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nAuthorization: x\r\n\r\n",
                                             target.method, target.path, target.host),
                                 443);
  if (!parsed) return fail(std::move(parsed).error());
  if (!*parsed) return fail(ErrorCode::invalid_argument, "the address is no request");
  auto& head = (*parsed)->head;
  std::string payload = egress::sigv4_payload(head)->text;
  head.fields.push_back({"x-amz-content-sha256", payload});
  egress::sign_sigv4(head, 1, key, scope, time, payload, {}, 443);
  for (auto& field : head.fields)
    if (field.name != "Host") headers.add(fmt::format("{}: {}", field.name, field.value));
  return {};
}

Status add_credential(HeaderList& headers, const ProbeTarget& target, const vault::Credential& credential,
                      const Secret& secret) {
  using Form = egress::CredentialForm;
  auto add = [&](std::string_view name, const Form& form) {
    std::string value = egress::field_with_secret(form, secret.expose());
    headers.add(fmt::format("{}: {}", name, value));
    wipe(value);
  };
  switch (credential.kind) {
    case Kind::bearer:
      add("Authorization", {Form::Kind::bearer, {}, {}});
      break;
    case Kind::basic:
    case Kind::git:
      add("Authorization", {Form::Kind::basic, {}, credential.user});
      break;
    case Kind::header:
      add(credential.header, {Form::Kind::header, credential.header, {}});
      break;
    case Kind::aws_sigv4:
      return add_signature(headers, target, credential, secret.expose());
  }
  return {};
}

}  // namespace

Result<ProbeTarget> probe_target(const std::string& text) {
  auto url = ANCHORHOLD_TRY(parse_url(text));
  if (url.scheme != "https")
    return fail(ErrorCode::invalid_argument,
                fmt::format("the address {} is not https: a credential goes over TLS only", text),
                "give it as https://HOST/PATH");
  return ProbeTarget{url.text(), url.authority(), url.target(), "GET"};
}

Result<int> probe(const ProbeTarget& target, const vault::Credential& credential, const Secret& secret,
                  const std::string& trust_pem) {
  curl_global_init(CURL_GLOBAL_DEFAULT);
  std::unique_ptr<CURL, EasyEnd> easy(curl_easy_init());
  if (!easy) return fail(ErrorCode::resource_exhausted, "the HTTP library could not be started");
  HeaderList headers;
  ANCHORHOLD_CHECK(add_credential(headers, target, credential, secret));
  char error_text[CURL_ERROR_SIZE] = "";
  auto set = [&](CURLoption option, auto value) { curl_easy_setopt(easy.get(), option, value); };
  curl_blob trust{const_cast<char*>(trust_pem.data()), trust_pem.size(), CURL_BLOB_NOCOPY};
  set(CURLOPT_URL, target.url.c_str());
  set(CURLOPT_PROTOCOLS_STR, "https");
  set(CURLOPT_HTTPHEADER, headers.list);
  set(CURLOPT_HEADEROPT, static_cast<long>(CURLHEADER_SEPARATE));  // none of it for a proxy
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_CAINFO_BLOB, &trust);
  set(CURLOPT_TIMEOUT_MS, limit_ms);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_PATH_AS_IS, 1L);
  set(CURLOPT_USERAGENT, "anchorhold/" ANCHORHOLD_VERSION);
  set(CURLOPT_ERRORBUFFER, error_text);
  set(CURLOPT_WRITEFUNCTION, read_over);
  if (target.method == "HEAD") set(CURLOPT_NOBODY, 1L);
  CURLcode code = curl_easy_perform(easy.get());
  if (code != CURLE_OK)
    return fail(code == CURLE_OPERATION_TIMEDOUT ? ErrorCode::deadline_exceeded : ErrorCode::unavailable,
                fmt::format("{}: {}", target.host, *error_text ? error_text : curl_easy_strerror(code)));
  long status = 0;
  curl_easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  return static_cast<int>(status);
}

}  // namespace anchorhold::cli
