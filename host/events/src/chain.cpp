#include "chain.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <openssl/evp.h>

namespace anchorhold::events {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_text = 8 * 1024;
constexpr std::size_t max_list = 256;

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    ok_ = context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1;
  }
  void field(std::string_view bytes) {
    unsigned char length[8];
    for (unsigned i = 0; i < 8; ++i)
      length[i] = static_cast<unsigned char>(std::uint64_t{bytes.size()} >> (56 - 8 * i));
    update(length, sizeof length);
    update(bytes.data(), bytes.size());
  }
  void field(std::int64_t number) { field(std::string_view(std::to_string(number))); }
  Result<std::string> finish() {
    std::string digest(hash_size, '\0');
    unsigned size = 0;
    ok_ = ok_ &&
          EVP_DigestFinal_ex(context_.get(), reinterpret_cast<unsigned char*>(digest.data()), &size) == 1;
    if (!ok_ || size != hash_size)
      return fail(ErrorCode::internal, "SHA-256 is not available in this OpenSSL");
    return digest;
  }

 private:
  void update(const void* data, std::size_t size) {
    ok_ = ok_ && EVP_DigestUpdate(context_.get(), data, size) == 1;
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  bool ok_ = false;
};

std::string limited(const std::string& text) {
  if (text.size() <= max_text) return text;
  return fmt::format("{}… ({} bytes)", text.substr(0, max_text), text.size());
}

Json encode_value(const Value& value) {
  if (auto* text = std::get_if<std::string>(&value)) return limited(*text);
  if (auto* number = std::get_if<std::int64_t>(&value)) return *number;
  if (auto* flag = std::get_if<bool>(&value)) return *flag;
  Json list = Json::array();
  for (const auto& item : std::get<std::vector<std::string>>(value)) {
    if (list.size() == max_list) {
      list.push_back("…");
      break;
    }
    list.push_back(limited(item));
  }
  return list;
}

}  // namespace

std::string first_previous() {
  return std::string(hash_size, '\0');
}

Result<std::string> hash_record(const StoredRecord& record) {
  Sha256 hash;
  hash.field("anchorhold-event-1");
  hash.field(record.previous);
  hash.field(record.sequence);
  hash.field(record.id);
  hash.field(record.wall_ns);
  hash.field(record.monotonic_ns);
  hash.field(record.boot);
  hash.field(record.name);
  hash.field(record.severity);
  hash.field(record.attributes);
  return hash.finish();
}

std::string encode_attributes(const Attributes& attributes) {
  Json object = Json::object();
  for (const auto& [key, value] : attributes) object[key] = encode_value(value);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<Attributes> decode_attributes(std::string_view text) {
  Json object = Json::parse(text, nullptr, false);
  if (!object.is_object())
    return fail(ErrorCode::data_loss, "the attributes of a record are not a JSON object");
  Attributes attributes;
  for (const auto& [key, value] : object.items()) {
    if (value.is_string()) {
      attributes[key] = value.get<std::string>();
    } else if (value.is_boolean()) {
      attributes[key] = value.get<bool>();
    } else if (value.is_number_integer()) {
      attributes[key] = value.get<std::int64_t>();
    } else if (value.is_array()) {
      std::vector<std::string> list;
      for (const auto& item : value) list.push_back(item.is_string() ? item.get<std::string>() : item.dump());
      attributes[key] = std::move(list);
    } else {
      attributes[key] = value.dump();
    }
  }
  return attributes;
}

Result<Record> to_record(const StoredRecord& stored) {
  Record record;
  record.sequence = stored.sequence;
  record.id = stored.id;
  record.wall =
      WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::nanoseconds(stored.wall_ns)));
  record.monotonic = std::chrono::nanoseconds(stored.monotonic_ns);
  record.boot = stored.boot;
  record.name = stored.name;
  record.severity = static_cast<Severity>(stored.severity);
  auto attributes = decode_attributes(stored.attributes);
  if (!attributes) return fail(with_context(attributes.error(), fmt::format("record {}", stored.sequence)));
  record.attributes = std::move(*attributes);
  return record;
}

}  // namespace anchorhold::events
