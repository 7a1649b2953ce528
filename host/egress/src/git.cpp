// Requests of Git by their heads.
#include "egress/git.h"

#include <fmt/format.h>

#include "egress/text.h"

namespace anchorhold::egress {
namespace {

using policy::GitOperation;

tl::unexpected<Error> refuse(std::string what) {
  return fail(ErrorCode::permission_denied, std::move(what));
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Decoded once. What would make it another path to somebody who decodes it differently is refused.
Result<std::string> decoded_path(std::string_view path) {
  std::string decoded;
  for (std::size_t i = 0; i < path.size(); ++i) {
    char c = path[i];
    bool encoded = c == '%';
    if (encoded) {
      int high = i + 2 < path.size() ? hex_digit(path[i + 1]) : -1;
      int low = i + 2 < path.size() ? hex_digit(path[i + 2]) : -1;
      if (high < 0 || low < 0) return refuse("the address is not properly encoded");
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\' ||
        (encoded && std::string_view("/.%").find(c) != std::string_view::npos))
      return refuse("an address with encoded separators or control characters is not allowed");
    decoded += c;
  }
  return decoded;
}

// A repository whose name holds what a server could take for the end of one.
bool is_ambiguous(std::string_view repository) {
  std::string text = fmt::format("/{}/", repository);
  for (std::string_view part : {"/info/refs/", "/info/lfs/", "/git-upload-pack/", "/git-receive-pack/",
                                "/git-upload-archive/", ".git/"})
    if (text.find(part) != std::string::npos && !(part == ".git/" && text.find(part) == text.size() - 5))
      return true;
  return false;
}

Result<GitRequest> request_for(std::string_view repository, GitOperation operation) {
  GitRequest request;
  if (repository.starts_with('/')) request.repository = policy::canonical_repository(repository.substr(1));
  if (request.repository.empty() || is_ambiguous(request.repository))
    return refuse("the address names no repository in the one plain spelling there is");
  request.operation = operation;
  return request;
}

std::string_view before(std::string_view path, std::string_view ending) {
  return path.substr(0, path.size() - ending.size());
}

bool has_only_value(const std::vector<Field>& fields, std::string_view name, std::string_view value) {
  auto values = values_of(fields, name);
  return values.size() == 1 && lower(values[0]) == value;
}

Result<GitRequest> discovery(const RequestHead& head, std::string_view path) {
  if (head.method != "GET" || head.body.kind != BodyFraming::Kind::none)
    return refuse("the refs of a repository are asked for with GET");
  auto repository = before(path, "/info/refs");
  if (head.query == "service=git-upload-pack") return request_for(repository, GitOperation::fetch);
  if (head.query == "service=git-receive-pack") return request_for(repository, GitOperation::push);
  return refuse(
      "only Git's smart HTTP is allowed, where the address ends with ?service=git-upload-pack or "
      "?service=git-receive-pack");
}

Result<GitRequest> exchange(const RequestHead& head, std::string_view repository, std::string_view service) {
  if (head.method != "POST") return refuse(fmt::format("{} is asked for with POST", service));
  if (head.has_query) return refuse(fmt::format("{} takes nothing in the query", service));
  if (!has_only_value(head.fields, "content-type", fmt::format("application/x-{}-request", service)))
    return refuse(fmt::format("a request for {} has another content type", service));
  bool push = service == "git-receive-pack";
  auto request = request_for(repository, push ? GitOperation::push : GitOperation::fetch);
  if (!request) return request;
  auto codings = values_of(head.fields, "content-encoding");
  request->gzip = codings.size() == 1 && (lower(codings[0]) == "gzip" || lower(codings[0]) == "x-gzip");
  if (!codings.empty() && !request->gzip && !has_only_value(head.fields, "content-encoding", "identity"))
    return refuse("the body of a request to Git is plain or compressed with gzip");
  request->carries_commands = push;
  // Version 2 has no push; what a server would make of one is not known.
  for (std::string_view version : values_of(head.fields, "git-protocol"))
    if (push && version != "version=0" && version != "version=1")
      return refuse("a push speaks version 0 or 1 of Git's protocol");
  return request;
}

}  // namespace

Result<GitRequest> git_request(const RequestHead& head) {
  if (head.upgrade) return refuse("only Git is allowed here");
  std::string path = ANCHORHOLD_TRY(decoded_path(head.path));
  if (path.ends_with("/info/refs")) return discovery(head, path);
  for (std::string_view service : {"git-upload-pack", "git-receive-pack"})
    if (std::string ending = fmt::format("/{}", service); path.ends_with(ending))
      return exchange(head, before(path, ending), service);
  if (auto lfs = path.find("/info/lfs/"); lfs != std::string::npos) {
    // What follows is one plain path, too.
    std::string_view rest = std::string_view(path).substr(lfs + 1);
    if (policy::canonical_repository(rest).empty()) return refuse("an address that is not plain");
    return request_for(std::string_view(path).substr(0, lfs), GitOperation::lfs);
  }
  return refuse("only requests of Git's smart HTTP are allowed");
}

Result<GitRequest> judge_git_request(const RequestHead& head, const std::vector<policy::GitGrant>& grants) {
  auto request = git_request(head);
  if (!request || policy::git_allows(grants, request->repository, request->operation)) return request;
  std::string_view verb = "fetch from";
  if (request->operation == GitOperation::push) verb = "push to";
  if (request->operation == GitOperation::lfs) verb = "use large files (LFS) of";
  return refuse(fmt::format("it is not allowed to {} the repository {}", verb, request->repository));
}

}  // namespace anchorhold::egress
