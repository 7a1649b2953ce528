#include "fetch_program.h"

#include <csignal>
#include <curl/curl.h>
#include <fcntl.h>
#include <libxml/parser.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/seal.h"
#include "egress/control.h"
#include "messages.h"
#include "transfer.h"

namespace anchorhold::egress {
namespace {

// Whatever a library reads from files when it is first used, it reads now.
Status warm_up() {
  unsigned char byte;
  if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK || RAND_bytes(&byte, 1) != 1)
    return fail(ErrorCode::internal, "the libraries for the web did not start");
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL_CTX_free(context);
  CURL* curl = curl_easy_init();
  curl_easy_cleanup(curl);
  xmlInitParser();
  return {};
}

Status seal_process(bool allow_weak) {
  SealPolicy policy;
  policy.syscalls = base_syscalls();
  // Sockets that are there already, and pairs with which libcurl wakes itself.
  allow(policy, {"send", "recv", "sendto", "recvfrom", "setsockopt", "getsockopt", "getsockname",
                 "getpeername", "socketpair", "shutdown"});
  policy.syscalls.push_back({"ioctl", {{1, ~std::uint64_t{0}, 0x5421}}});  // FIONBIO
  // Asked for by libraries that take a no: whether there is IPv6, and files of settings and of charsets.
  for (const char* name :
       {"socket", "openat", "open", "access", "readlink", "stat", "newfstatat", "faccessat"})
    policy.syscalls.push_back({name, {}, true});
  policy.allow_weak = allow_weak;
  policy.kept_descriptors = {fetch_fd::answer};
  for (int hop = 0; hop <= max_redirects; ++hop)
    policy.kept_descriptors.push_back(fetch_fd::first_stream + hop);
  policy.limits = {{RLIMIT_CORE, 0}, {RLIMIT_FSIZE, 16u << 20}, {RLIMIT_CPU, 60}};
#ifndef ANCHORHOLD_SANITIZED
  policy.limits.push_back({RLIMIT_DATA, 512ull << 20});
#endif
  ANCHORHOLD_TRY(seal(policy));
  return {};
}

Status write_answer(std::string_view answer) {
  while (!answer.empty()) {
    ssize_t count = write(fetch_fd::answer, answer.data(), answer.size());
    if (count <= 0) return fail_errno(errno, "answering");
    answer.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace

Status run_fetch(bool allow_weak) {
  std::signal(SIGPIPE, SIG_IGN);
  if (fcntl(fetch_fd::request, F_GETFD) < 0 || fcntl(fetch_fd::answer, F_GETFD) < 0)
    return fail(ErrorCode::failed_precondition, "this program is started by anchorhold, not by people");
  ANCHORHOLD_CHECK(warm_up());
  // Our own host wrote it.
  std::string text = ANCHORHOLD_TRY(read_text_descriptor(fetch_fd::request));
  auto order = ANCHORHOLD_TRY(parse_order(text));
  ANCHORHOLD_CHECK(seal_process(allow_weak));
  std::vector<UniqueFd> streams;
  for (int hop = 0; hop <= max_redirects; ++hop) streams.emplace_back(fetch_fd::first_stream + hop);
  return write_answer(encode_answer(transfer(order, std::move(streams))));
}

}  // namespace anchorhold::egress
