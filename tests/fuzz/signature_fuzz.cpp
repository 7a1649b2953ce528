// Requests of a guest to destinations with a credential of each kind: whose credential they carry, and what
// is signed again.
#include <cstdint>
#include <cstdlib>

#include "egress/provenance.h"
#include "egress/sigv4.h"

using namespace anchorhold;
using egress::CredentialForm;

namespace {

constexpr std::string_view token = "0123456789abcdef";

void sign(egress::RequestHead head, std::size_t field) {
  auto guest = egress::parse_sigv4(head.fields.at(field).value);
  if (!guest || !*guest || (*guest)->access_key_id != token) std::abort();
  auto payload = egress::sigv4_payload(head);
  if (!payload) return;
  auto scope = (*guest)->scope;
  scope.date = "20150830";
  egress::SigV4Key key{"AKIDEXAMPLE", "temporary", std::string(32, 'k')};
  egress::sign_sigv4(head, field, key, scope, "20150830T123600Z", payload->text, (*guest)->signed_headers,
                     443);
  auto values = egress::values_of(head.fields, "authorization");
  if (values.size() != 1) std::abort();
  auto made = egress::parse_sigv4(values[0]);
  if (!made || !*made || (*made)->scope != scope || (*made)->access_key_id != "AKIDEXAMPLE") std::abort();
  for (const auto& each : head.fields)
    if (egress::holds_token(each.value, token)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  (void)egress::parse_sigv4(bytes);
  (void)egress::SigV4Scope::parse(bytes);
  (void)egress::parse_sigv4_key(bytes);
  auto parsed = egress::parse_request_head(bytes, 443);
  if (!parsed || !*parsed) return 0;
  const auto& head = (*parsed)->head;
  for (auto kind : {CredentialForm::Kind::bearer, CredentialForm::Kind::basic, CredentialForm::Kind::header,
                    CredentialForm::Kind::aws_sigv4}) {
    CredentialForm form{kind, "x-api-key", "user"};
    auto provenance = egress::judge_provenance(head, form, token);
    bool swap = provenance.verdict == egress::Provenance::Verdict::swap;
    if (swap && provenance.field >= head.fields.size()) std::abort();
    if (swap && kind == CredentialForm::Kind::aws_sigv4) sign(head, provenance.field);
  }
  return 0;
}
