#include "egress/client_hello.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

namespace anchorhold::egress {
namespace {

using ::testing::HasSubstr;

std::string number(std::size_t value, int size) {
  std::string bytes;
  for (int i = size - 1; i >= 0; --i) bytes += static_cast<char>(value >> (8 * i));
  return bytes;
}

std::string vector(const std::string& bytes, int size) {
  return number(bytes.size(), size) + bytes;
}

std::string extension(unsigned type, const std::string& bytes) {
  return number(type, 2) + vector(bytes, 2);
}

std::string server_name(const std::string& name) {
  return extension(0, vector(std::string(1, '\0') + vector(name, 2), 2));
}

std::string message(const std::string& extensions) {
  std::string body = number(0x0303, 2) + std::string(32, 'r') + vector("", 1) + vector("\x13\x01", 2) +
                     vector(std::string(1, '\0'), 1) + vector(extensions, 2);
  return "\x01" + vector(body, 3);
}

std::string record(const std::string& bytes) {
  return "\x16\x03\x01" + vector(bytes, 2);
}

// What a real client sends.
std::string openssl_hello(const char* name) {
  SSL_CTX* context = SSL_CTX_new(TLS_client_method());
  SSL* ssl = SSL_new(context);
  BIO *in = BIO_new(BIO_s_mem()), *out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl, in, out);
  SSL_set_tlsext_host_name(ssl, name);
  const unsigned char protocols[] = "\x02h2\x08http/1.1";
  SSL_set_alpn_protos(ssl, protocols, sizeof protocols - 1);
  SSL_connect(ssl);
  char* text = nullptr;
  long size = BIO_get_mem_data(out, &text);
  std::string bytes(text, static_cast<std::size_t>(size));
  SSL_free(ssl);
  SSL_CTX_free(context);
  return bytes;
}

TEST(ClientHello, ARealClientIsUnderstood) {
  auto hello = parse_client_hello(openssl_hello("Example.COM."));
  ASSERT_TRUE(hello.has_value()) << hello.error().message;
  ASSERT_TRUE(hello->has_value());
  EXPECT_EQ((*hello)->server_name->text(), "example.com");
  EXPECT_EQ((*hello)->protocols, (std::vector<std::string>{"h2", "http/1.1"}));
  EXPECT_FALSE((*hello)->encrypted_hello);
}

TEST(ClientHello, ItIsPutTogetherHoweverItIsCut) {
  std::string whole = message(server_name("example.com"));
  for (std::size_t part = 1; part < whole.size(); ++part) {
    std::string bytes;
    for (std::size_t at = 0; at < whole.size(); at += part) bytes += record(whole.substr(at, part));
    for (std::size_t size = 0; size < bytes.size(); size += 7) {
      auto incomplete = parse_client_hello(bytes.substr(0, size));
      ASSERT_TRUE(incomplete.has_value()) << incomplete.error().message;
      ASSERT_FALSE(incomplete->has_value()) << part << " " << size;
    }
    auto hello = parse_client_hello(bytes);
    ASSERT_TRUE(hello.has_value() && hello->has_value()) << part;
    EXPECT_EQ((*hello)->server_name->text(), "example.com");
  }
}

TEST(ClientHello, AnEncryptedOneIsSeen) {
  auto hello =
      parse_client_hello(record(message(server_name("public.example") + extension(0xfe0d, "grease"))));
  ASSERT_TRUE(hello.has_value() && hello->has_value());
  EXPECT_TRUE((*hello)->encrypted_hello);
}

TEST(ClientHello, EverythingElseIsRefused) {
  std::string two_names = extension(
      0, vector(std::string(1, '\0') + vector("a.example", 2) + std::string(1, '\0') + vector("b.example", 2),
                2));
  const std::pair<std::string, const char*> table[] = {
      {"GET / HTTP/1.1\r\n", "does not begin with a TLS handshake"},
      {std::string("\x16\x02\x01\x00\x10", 5), "unknown version"},
      {std::string("\x16\x03\x01\x00\x00", 5), "record of 0 bytes"},
      {std::string("\x16\x03\x01\x50\x00", 5), "record of 20480 bytes"},
      {record("\x02xxx"), "does not begin with a ClientHello"},
      {record(std::string("\x01\x01\x00\x00", 4)), "ClientHello of more than"},
      {record(message(server_name("example.com")) + "x"), "more than the ClientHello"},
      {record(message(server_name("192.0.2.1"))), "a server name that is an address"},
      {record(message(server_name("exa mple.com"))), "the server name in the ClientHello"},
      {record(message(server_name(std::string("a\0b", 3)))), "the server name in the ClientHello"},
      {record(message(server_name(""))), "the server name in the ClientHello"},
      {record(message(two_names)), "exactly one host name"},
      {record(message(server_name("a.example") + server_name("b.example"))), "an extension twice"},
      {record(message(std::string(1, '\0'))), "extensions do not fit"},
      {record(message(extension(16, vector("", 2)))), "ALPN"},
      {record("\x01" + vector("short", 3)), "not well formed"},
  };
  for (const auto& [bytes, why] : table) {
    auto hello = parse_client_hello(bytes);
    ASSERT_FALSE(hello.has_value()) << why;
    EXPECT_THAT(hello.error().message, HasSubstr(why));
  }
}

}  // namespace
}  // namespace anchorhold::egress
