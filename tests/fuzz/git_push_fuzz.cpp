// Requests and pushes of Git: read at once and in pieces they mean the same, and a push that may go on
// changes only what was granted, whoever reads it.
#include <cstdint>
#include <cstdlib>

#include "egress/git.h"

using namespace anchorhold::egress;
namespace policy = anchorhold::policy;

namespace {

struct Read {
  bool refused = false, whole = false;
  GitPush push;
};

Read read(std::string_view bytes, std::size_t piece, bool gzip) {
  GitPushReader reader(gzip);
  Read result;
  for (std::size_t at = 0; at < bytes.size() && !result.whole; at += piece) {
    auto whole = reader.take(bytes.substr(at, piece));
    if (!whole) {
      result.refused = true;
      return result;
    }
    result.whole = *whole;
  }
  if (!result.whole) result.whole = reader.end().has_value();
  result.push = reader.push();
  return result;
}

void check_request(std::string_view target) {
  RequestHead head;
  head.method = target.size() % 2 ? "GET" : "POST";
  auto question = target.find('?');
  head.path = target.substr(0, question);
  head.has_query = question != std::string_view::npos;
  if (head.has_query) head.query = target.substr(question + 1);
  head.fields = {{"Content-Type", "application/x-git-receive-pack-request"}};
  auto request = git_request(head);
  if (request && policy::canonical_repository(request->repository + ".git") != request->repository)
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  check_request(bytes);
  bool gzip = data[0] & 0x80;
  Read at_once = read(bytes, bytes.size() + 1, gzip), pieces = read(bytes, data[0] % 7 + 1, gzip);
  if (at_once.refused != pieces.refused || at_once.whole != pieces.whole) std::abort();
  if (!at_once.whole) return 0;
  if (text_of_refs(at_once.push) != text_of_refs(pieces.push)) std::abort();
  const std::vector<policy::GitGrant> grants{
      {{"app"}, {policy::GitOperation::push}, {"refs/heads/agent/*"}, {}}};
  auto judgement = judge_git_push(at_once.push, "app", grants);
  (void)git_push_report(at_once.push, judgement, judgement.reason);
  if (!judgement.allowed()) return 0;
  for (const auto& command : at_once.push.commands)
    if (!command.ref.starts_with("refs/heads/agent/") || command.removes()) std::abort();
  return 0;
}
