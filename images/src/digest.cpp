#include "digest.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <fcntl.h>
#include <fmt/format.h>
#include <mutex>
#include <openssl/evp.h>
#include <optional>
#include <thread>
#include <unistd.h>
#include <vector>

namespace anchorhold::images {
namespace {

constexpr std::size_t read_bytes = 256 * 1024;

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Reads up to `size` bytes at `offset`; 0 is the end of the file.
Result<std::size_t> read_at(int fd, char* buffer, std::size_t size, std::uint64_t offset) {
  for (;;) {
    ssize_t got = pread(fd, buffer, size, static_cast<off_t>(offset));
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno != EINTR) return fail_errno(errno, "reading");
  }
}

Status digest_piece(int fd, std::uint64_t offset, std::uint64_t size, std::vector<char>& buffer, Sha256& hash,
                    std::string& result) {
  while (size > 0) {
    std::size_t got =
        ANCHORHOLD_TRY(read_at(fd, buffer.data(), std::min<std::uint64_t>(size, buffer.size()), offset));
    if (got == 0) return fail(ErrorCode::data_loss, "the file is shorter than it was");
    hash.update(buffer.data(), got);
    offset += got;
    size -= got;
  }
  result = hash.finish();
  return {};
}

}  // namespace

bool is_hex(std::string_view digits, std::size_t count) {
  return digits.size() == count &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return hex_value(c) >= 0; });
}

std::string from_hex(std::string_view digits, std::size_t bytes) {
  if (!is_hex(digits, bytes * 2)) return {};
  std::string result;
  for (std::size_t i = 0; i < digits.size(); i += 2)
    result += static_cast<char>(hex_value(digits[i]) << 4 | hex_value(digits[i + 1]));
  return result;
}

struct Sha256::Context {
  EVP_MD_CTX* value = EVP_MD_CTX_new();
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context() { EVP_MD_CTX_free(value); }
};

// The library's SHA-256 fails only when memory is out or the library is broken; neither can be handled here.
Sha256::Sha256() : context_(std::make_unique<Context>()) {
  if (!context_->value || EVP_DigestInit_ex(context_->value, EVP_sha256(), nullptr) != 1) std::abort();
}
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256::~Sha256() = default;

void Sha256::update(const void* bytes, std::size_t size) {
  if (EVP_DigestUpdate(context_->value, bytes, size) != 1) std::abort();
}

std::string Sha256::finish() {
  std::string result(32, '\0');
  if (EVP_DigestFinal_ex(context_->value, reinterpret_cast<unsigned char*>(result.data()), nullptr) != 1 ||
      EVP_DigestInit_ex(context_->value, nullptr, nullptr) != 1)
    std::abort();
  return result;
}

Result<Digest> digest_file(int fd, std::uint64_t size) {
  std::uint64_t pieces = (size + digest_piece_bytes - 1) / digest_piece_bytes;
  std::vector<std::string> results(pieces);
  std::atomic<std::uint64_t> next = 0;
  std::mutex mutex;
  std::optional<Error> error;
  auto work = [&] {
    std::vector<char> buffer(read_bytes);
    Sha256 hash;
    for (std::uint64_t i = next++; i < pieces; i = next++) {
      std::uint64_t offset = i * digest_piece_bytes;
      auto done =
          digest_piece(fd, offset, std::min(digest_piece_bytes, size - offset), buffer, hash, results[i]);
      if (done) continue;
      std::lock_guard lock(mutex);
      error = done.error();
      next = pieces;
    }
  };
  {
    std::vector<std::jthread> threads;
    auto count = std::clamp<std::uint64_t>(std::thread::hardware_concurrency(), 1, 8);
    for (std::uint64_t i = 1; i < std::min(count, pieces); ++i) threads.emplace_back(work);
    work();
  }
  if (error) return fail(*error);
  Sha256 hash;
  for (const auto& result : results) hash.update(result);
  return to_hex(hash.finish());
}

Result<std::string> sha256_file(const std::filesystem::path& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return fail_errno(errno, fmt::format("opening {}", path.string()));
  std::vector<char> buffer(read_bytes);
  Sha256 hash;
  for (std::uint64_t offset = 0;;) {
    auto got = read_at(fd.get(), buffer.data(), buffer.size(), offset);
    if (!got) return fail(with_context(got.error(), path.string()));
    if (*got == 0) return to_hex(hash.finish());
    hash.update(buffer.data(), *got);
    offset += *got;
  }
}

}  // namespace anchorhold::images
