#include "java_keystore.h"

#include <boost/uuid/detail/sha1.hpp>
#include <cstdint>
#include <fmt/format.h>
#include <resolv.h>

namespace anchorhold::guest {
namespace {

constexpr std::uint32_t magic = 0xfeedfeed, version = 2, trusted_certificate = 2;

void append_number(std::string& bytes, std::uint64_t number, int size) {
  for (int i = size - 1; i >= 0; --i) bytes += static_cast<char>(number >> (8 * i));
}

void append_text(std::string& bytes, std::string_view text) {
  append_number(bytes, text.size(), 2);
  bytes += text;
}

// SHA-1 over the password in UTF-16, a constant of the format, and everything before.
std::string digest_of(std::string_view store) {
  std::string input;
  for (char letter : std::string_view("changeit")) input += {'\0', letter};
  input += "Mighty Aphrodite";
  input += store;
  boost::uuids::detail::sha1 hash;
  hash.process_bytes(input.data(), input.size());
  boost::uuids::detail::sha1::digest_type words;
  hash.get_digest(words);
  std::string digest;
  for (auto word : words) append_number(digest, word, 4);
  return digest;
}

}  // namespace

std::vector<std::string> certificates_in(std::string_view pem) {
  constexpr std::string_view begin = "-----BEGIN CERTIFICATE-----", end = "-----END CERTIFICATE-----";
  std::vector<std::string> certificates;
  for (auto from = pem.find(begin); from != pem.npos; from = pem.find(begin, from)) {
    from += begin.size();
    auto to = pem.find(end, from);
    if (to == pem.npos) break;
    const std::string text(pem.substr(from, to - from));
    std::string bytes(text.size(), '\0');
    int size = b64_pton(text.c_str(), reinterpret_cast<unsigned char*>(bytes.data()), bytes.size());
    if (size > 0) certificates.push_back(bytes.substr(0, static_cast<std::size_t>(size)));
  }
  return certificates;
}

std::string java_keystore(const std::vector<std::string>& certificates) {
  std::string store;
  append_number(store, magic, 4);
  append_number(store, version, 4);
  append_number(store, certificates.size(), 4);
  for (std::size_t i = 0; i < certificates.size(); ++i) {
    append_number(store, trusted_certificate, 4);
    append_text(store, fmt::format("authority-{}", i));
    append_number(store, 0, 8);  // when it was added
    append_text(store, "X.509");
    append_number(store, certificates[i].size(), 4);
    store += certificates[i];
  }
  return store + digest_of(store);
}

}  // namespace anchorhold::guest
