#include "wire_server.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/fd.h"
#include "http.h"

namespace anchorhold::agent {

void WireTest::SetUp() {
  std::string node = ANCHORHOLD_NODE;
  if (node.empty()) GTEST_SKIP() << "there is no node to run the test server with";
  auto in = make_pipe();
  auto out = make_pipe();
  ASSERT_TRUE(in && out);
  SpawnSpec spec;
  spec.argv = {node, ANCHORHOLD_SOURCE_DIR "/tests/wire/server.mjs"};
  spec.descriptors = {{in->read_end.get(), 0}, {out->write_end.get(), 1}, {2, 2}};
  auto child = Child::spawn(spec);
  ASSERT_TRUE(child) << child.error().message;
  child_.emplace(std::move(*child));
  lifeline_ = std::move(in->write_end);
  out->write_end.reset();
  std::string line;
  for (char c = 0; line.empty() || line.back() != '\n';) {
    ASSERT_EQ(read(out->read_end.get(), &c, 1), 1) << "the test server did not start";
    line += c;
  }
  port_ = std::stoi(line);
}

std::string WireTest::url(unsigned split) const {
  return split == 0 ? fmt::format("http://127.0.0.1:{}", port_)
                    : fmt::format("http://127.0.0.1:{}/split{}/v1", port_, split);
}

Json WireTest::seen(const std::string& model) const {
  HttpRequest asked;
  asked.url = url() + "/seen";
  asked.body = to_text({{"model", model}});
  std::string text;
  auto sink = [&](const HttpHead&, std::string_view piece) -> Status {
    text += piece;
    return {};
  };
  auto head = http_post(asked, sink, {});
  EXPECT_TRUE(head) << head.error().message;
  auto json = parse_json(text);
  return json ? *json : Json();
}

}  // namespace anchorhold::agent
