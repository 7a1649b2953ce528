// What servers send, cut in every place and broken in many ways; and the rules of trying again.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "anthropic.h"
#include "anthropic_decoder.h"
#include "message_json.h"
#include "openai.h"
#include "openai_decoder.h"
#include "retry.h"
#include "sse.h"

namespace anchorhold::agent {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

struct Heard : TurnObserver {
  void text_delta(std::string_view text) override { all += text; }
  void thinking_delta(std::string_view text) override { all += text; }
  std::string all;
};

std::vector<std::string> events_of(std::string_view bytes, std::size_t piece) {
  std::vector<std::string> events;
  SseParser parser([&](const SseEvent& event) -> Status {
    events.push_back(event.name + "|" + event.data);
    return {};
  });
  for (std::size_t at = 0; at < bytes.size(); at += piece) EXPECT_TRUE(parser.feed(bytes.substr(at, piece)));
  return events;
}

TEST(Sse, the_standard_s_forms) {
  const struct {
    std::string_view bytes;
    std::vector<std::string> events;
  } cases[] = {
      {"data: a\n\n", {"message|a"}},
      {"data:a\r\n\r\ndata:b\r\rdata:c\n\n", {"message|a", "message|b", "message|c"}},
      {"event: x\ndata: 1\ndata:  2\n\n", {"x|1\n 2"}},
      {": comment\nid: 7\nretry: 5\nunknown: z\ndata\n\n", {"message|"}},
      {"event: lonely\n\ndata: next\n\n", {"message|next"}},
      {"\xef\xbb\xbf"
       "data: bom\n\n",
       {"message|bom"}},
      {"data: unfinished\n", {}},
      {"data: unfinished", {}},
      {"\n\n\n", {}},
  };
  for (const auto& c : cases) {
    for (std::size_t piece = 1; piece <= c.bytes.size(); ++piece)
      EXPECT_EQ(events_of(c.bytes, piece), c.events) << c.bytes;
  }
}

TEST(Sse, what_never_ends_is_refused_and_memory_stays_bounded) {
  SseParser lines([](const SseEvent&) -> Status { return {}; }, 1000);
  EXPECT_TRUE(lines.feed(std::string(900, 'x')));
  EXPECT_FALSE(lines.feed(std::string(200, 'x')));
  SseParser data([](const SseEvent&) -> Status { return {}; }, 1000);
  Status last;
  for (int i = 0; i < 200 && last; ++i) last = data.feed("data: 0123456789\n");
  EXPECT_FALSE(last);
}

TEST(Sse, the_sink_s_error_ends_it) {
  SseParser parser([](const SseEvent&) -> Status { return fail(ErrorCode::data_loss, "no"); });
  EXPECT_FALSE(parser.feed("data: x\n\n"));
}

template <typename Decoder, typename... Args>
Result<Turn> decode(std::string_view bytes, std::size_t first, Heard& heard, Args... args) {
  Decoder decoder(heard, args...);
  ANCHORHOLD_CHECK(decoder.feed(bytes.substr(0, first)));
  ANCHORHOLD_CHECK(decoder.feed(bytes.substr(first)));
  return decoder.finish();
}

std::string anthropic_stream() {
  return R"(event: message_start
data: {"type":"message_start","message":{"model":"m","usage":{"input_tokens":5,"output_tokens":1}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm 🧮"}}

event: content_block_delta
data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"abc=="}}

event: content_block_stop
data: {"type":"content_block_stop","index":0}

event: content_block_start
data: {"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"shell","input":{}}}

event: ping
data: {"type":"ping"}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}

event: content_block_delta
data: {"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"\"é\"}"}}

event: content_block_stop
data: {"type":"content_block_stop","index":1}

event: message_delta
data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":9}}

event: message_stop
data: {"type":"message_stop"}

)";
}

std::string openai_stream() {
  return R"(data: {"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"wörld "},"finish_reason":null}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"shell","arguments":""}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"command\":"}}]}}]}

data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"é\"}"}}]}}]}

data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}

data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}

data: [DONE]

)";
}

TEST(AnthropicDecoder, is_the_same_however_the_bytes_are_cut) {
  std::string stream = anthropic_stream();
  Heard whole_heard;
  auto whole = decode<AnthropicDecoder>(stream, 0, whole_heard);
  ASSERT_TRUE(whole) << whole.error().message;
  ASSERT_THAT(whole->blocks, SizeIs(2));
  EXPECT_EQ(whole->usage.output_tokens, 9u);
  EXPECT_EQ(whole->stop_reason, StopReason::tool_use);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    Heard heard;
    auto turn = decode<AnthropicDecoder>(stream, cut, heard);
    ASSERT_TRUE(turn) << cut;
    ASSERT_EQ(blocks_to_json(turn->blocks), blocks_to_json(whole->blocks)) << cut;
    ASSERT_EQ(heard.all, whole_heard.all) << cut;
  }
}

TEST(AnthropicDecoder, a_stream_that_ends_early_is_incomplete_at_every_byte) {
  std::string stream = anthropic_stream();
  std::size_t complete = stream.find("event: message_stop");
  for (std::size_t end = 0; end < complete; ++end) {
    Heard heard;
    AnthropicDecoder decoder(heard);
    ASSERT_TRUE(decoder.feed(std::string_view(stream).substr(0, end)));
    auto turn = decoder.finish();
    ASSERT_FALSE(turn) << end;
    ASSERT_EQ(turn.error().code, ErrorCode::unavailable);
  }
}

TEST(AnthropicDecoder, hostile_streams_are_errors) {
  const std::pair<std::string, ErrorCode> cases[] = {
      {"data: not json\n\n", ErrorCode::data_loss},
      {"data: {\"type\":\"content_block_delta\",\"index\":4,\"delta\":{}}\n\n", ErrorCode::data_loss},
      {"data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":7}\n\n", ErrorCode::data_loss},
      {"data: " + std::string(5000, '[') + "\n\n", ErrorCode::data_loss},
      {"event: error\ndata: "
       "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"x\"}}\n\n",
       ErrorCode::unavailable},
      {"event: error\ndata: "
       "{\"type\":\"error\",\"error\":{\"type\":\"authentication_error\",\"message\":\"x\"}}\n\n",
       ErrorCode::failed_precondition},
      {"event: error\ndata: {\"error\":5}\n\n", ErrorCode::failed_precondition},
  };
  for (const auto& [bytes, code] : cases) {
    Heard heard;
    AnthropicDecoder decoder(heard);
    auto fed = decoder.feed(bytes);
    ASSERT_FALSE(fed) << bytes.substr(0, 80);
    EXPECT_EQ(fed.error().code, code) << bytes.substr(0, 80);
  }
  Heard heard;
  AnthropicDecoder decoder(heard);
  Status last;
  for (int i = 0; i < 5000 && last; ++i)
    last = decoder.feed(fmt::format(
        "data: {{\"type\":\"content_block_start\",\"index\":{},\"content_block\":{{\"type\":\"text\"}}}}\n\n",
        i));
  ASSERT_FALSE(last);
  EXPECT_THAT(last.error().message, HasSubstr("too many blocks"));
}

// Whatever a server sends must be readable again when the task is resumed.
TEST(AnthropicDecoder, what_is_stored_can_be_read_again) {
  std::string deep = R"({\"a\":)" + std::string(62, '[') + std::string(62, ']') + "}";
  Heard heard;
  AnthropicDecoder decoder(heard);
  for (
      std::string line :
      {std::string(
           R"({"type":"content_block_start","index":0,"content_block":{"type":"tool_use","input":{}}})"),
       R"({"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":")" +
           deep + "\"}}",
       std::string(
           R"({"type":"content_block_start","index":1,"content_block":{"type":"tool_use","name":"a","id":"x"}})"),
       std::string(
           R"({"type":"content_block_start","index":2,"content_block":{"type":"tool_use","name":"b","id":"x"}})"),
       std::string(
           R"({"type":"content_block_start","index":3,"content_block":{"type":"tool_result","content":"forged"}})"),
       std::string(R"({"type":"message_delta","delta":{"stop_reason":"tool_use"}})")})
    ASSERT_TRUE(decoder.feed("data: " + line + "\n\n")) << line;
  auto turn = decoder.finish();
  ASSERT_TRUE(turn);
  ASSERT_THAT(turn->blocks, SizeIs(3));
  EXPECT_EQ(std::get<ToolUseBlock>(turn->blocks[0]).name, "unnamed");
  EXPECT_FALSE(std::get<ToolUseBlock>(turn->blocks[0]).id.empty());
  EXPECT_NE(std::get<ToolUseBlock>(turn->blocks[1]).id, std::get<ToolUseBlock>(turn->blocks[2]).id);
  auto back = blocks_from_json(blocks_to_json(turn->blocks));
  ASSERT_TRUE(back) << back.error().message;
  EXPECT_EQ(blocks_to_json(*back), blocks_to_json(turn->blocks));
}

TEST(AnthropicDecoder, odd_events_are_passed_over) {
  Heard heard;
  AnthropicDecoder decoder(heard);
  for (const char* odd :
       {"data: 5\n\n", "data: []\n\n", "data: {\"type\":\"message_delta\"}\n\n",
        "data: {\"type\":\"message_start\",\"message\":[]}\n\n",
        "data: {\"type\":\"content_block_stop\",\"index\":9}\n\n", "event: new\ndata: {}\n\n"})
    EXPECT_TRUE(decoder.feed(odd)) << odd;
  ASSERT_TRUE(
      decoder.feed("data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n"));
  auto turn = decoder.finish();
  ASSERT_TRUE(turn);
  EXPECT_THAT(turn->blocks, IsEmpty());
}

TEST(AnthropicBody, empty_text_and_other_wires_blocks_stay_out_and_marks_are_few) {
  TurnRequest request;
  request.system = "s";
  for (int i = 0; i < 5; ++i) {
    request.messages.push_back({Role::user, {TextBlock{"q", {}}}});
    request.messages.push_back(
        {Role::assistant,
         {TextBlock{"", {}}, OpaqueBlock{"openai.reasoning", R"({"type":"openai.reasoning"})"}}});
  }
  request.messages.push_back({Role::user, {ToolResultBlock{"x", "y", false}}});
  Json body = anthropic_body(request, "m", 5);
  EXPECT_THAT(body["messages"], SizeIs(6));
  int marks = 0;
  for (const auto& message : body["messages"]) marks += message["content"].back().contains("cache_control");
  EXPECT_EQ(marks, 2);
  EXPECT_TRUE(body["messages"].back()["content"].back().contains("cache_control"));
}

TEST(OpenAiDecoder, is_the_same_however_the_bytes_are_cut) {
  std::string stream = openai_stream();
  Heard whole_heard;
  auto whole = decode<OpenAiDecoder>(stream, 0, whole_heard, OpenAiDecoder::Form::events);
  ASSERT_TRUE(whole);
  ASSERT_THAT(whole->blocks, SizeIs(2));
  EXPECT_EQ(whole->usage.input_tokens, 5u);
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {
    Heard heard;
    auto turn = decode<OpenAiDecoder>(stream, cut, heard, OpenAiDecoder::Form::events);
    ASSERT_TRUE(turn) << cut;
    ASSERT_EQ(blocks_to_json(turn->blocks), blocks_to_json(whole->blocks)) << cut;
    ASSERT_EQ(heard.all, whole_heard.all) << cut;
  }
}

TEST(OpenAiDecoder, hostile_streams_are_errors_or_passed_over) {
  auto feed = [](std::string bytes) {
    Heard heard;
    OpenAiDecoder decoder(heard, OpenAiDecoder::Form::events);
    return decoder.feed(bytes);
  };
  EXPECT_EQ(feed("data: nonsense\n\n").error().code, ErrorCode::data_loss);
  EXPECT_EQ(feed("data: {\"error\":\"busy\"}\n\n").error().code, ErrorCode::unavailable);
  EXPECT_EQ(feed("data: {\"error\":{\"code\":\"insufficient_quota\",\"message\":\"pay\"}}\n\n").error().code,
            ErrorCode::failed_precondition);
  for (const char* odd : {"data: 5\n\n", "data: {\"choices\":5}\n\n", "data: {\"choices\":[5,null]}\n\n",
                          "data: {\"error\":null}\n\n",
                          "data: {\"choices\":[{\"delta\":{\"tool_calls\":[5,null,{}],\"content\":[]}}]}\n\n",
                          "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"other\"}}]}\n\n",
                          "data: [DONE]\n\ndata: garbage\n\n"})
    EXPECT_TRUE(feed(odd)) << odd;
  std::string many;
  for (int i = 0; i < 1100; ++i)
    many += fmt::format("data: {{\"choices\":[{{\"delta\":{{\"tool_calls\":[{{\"index\":{}}}]}}}}]}}\n\n", i);
  EXPECT_FALSE(feed(many));
}

TEST(OpenAiDecoder, ids_are_made_unique) {
  Heard heard;
  OpenAiDecoder decoder(heard, OpenAiDecoder::Form::whole);
  ASSERT_TRUE(decoder.feed(
      R"({"choices":[{"message":{"tool_calls":[{"index":0,"id":"same","function":{"name":"a"}},{"index":1,"id":"same","function":{"name":"b"}}]},"finish_reason":"stop"}]})"));
  auto turn = decoder.finish();
  ASSERT_TRUE(turn);
  EXPECT_NE(std::get<ToolUseBlock>(turn->blocks[0]).id, std::get<ToolUseBlock>(turn->blocks[1]).id);
}

TEST(OpenAiBody, results_are_messages_and_malformed_arguments_stay_json) {
  TurnRequest request;
  request.messages = {{Role::user, {TextBlock{"q", {}}}},
                      {Role::assistant,
                       {OpaqueBlock{"thinking", R"({"type":"thinking"})"},
                        ToolUseBlock{"a", "shell", "{\"x", true}, ToolUseBlock{"b", "list", "{}", false}}},
                      {Role::user, {ToolResultBlock{"a", "one", true}, ToolResultBlock{"b", "two", false}}},
                      {Role::assistant, {OpaqueBlock{"thinking", R"({"type":"thinking"})"}}}};
  Json body = openai_body(request, "m", true);
  ASSERT_THAT(body["messages"], SizeIs(4));
  EXPECT_TRUE(parse_json(body["messages"][1]["tool_calls"][0]["function"]["arguments"].get<std::string>()));
  EXPECT_EQ(body["messages"][2]["role"], "tool");
  EXPECT_EQ(body["messages"][3]["content"], "two");
  EXPECT_FALSE(body.contains("max_completion_tokens"));
}

HttpHead head(long status, std::map<std::string, std::string> headers = {}) {
  return {status, std::move(headers)};
}

TEST(Retry, statuses_as_the_official_clients) {
  for (long status : {408, 409, 429, 500, 502, 503, 529, 599})
    EXPECT_TRUE(should_retry(head(status))) << status;
  for (long status : {400, 401, 403, 404, 413, 422, 301}) EXPECT_FALSE(should_retry(head(status))) << status;
  EXPECT_TRUE(should_retry(head(400, {{"x-should-retry", "true"}})));
  EXPECT_FALSE(should_retry(head(529, {{"x-should-retry", "false"}})));
  EXPECT_TRUE(should_retry(head(529, {{"x-should-retry", "maybe"}})));
}

TEST(Retry, the_server_s_delay) {
  WallTime now = std::chrono::system_clock::from_time_t(784111777);  // Sun, 06 Nov 1994 08:49:37 GMT
  auto delay = [&](std::map<std::string, std::string> headers) {
    return server_delay(head(429, std::move(headers)), now);
  };
  using ms = std::chrono::milliseconds;
  EXPECT_EQ(delay({{"retry-after-ms", "250"}}), ms(250));
  EXPECT_EQ(delay({{"retry-after-ms", "250"}, {"retry-after", "9"}}), ms(250));
  EXPECT_EQ(delay({{"retry-after-ms", "junk"}, {"retry-after", "9"}}), ms(9000));
  EXPECT_EQ(delay({{"retry-after", "1.5"}}), ms(1500));
  EXPECT_EQ(delay({{"retry-after", "Sun, 06 Nov 1994 08:50:07 GMT"}}), ms(30000));
  for (const char* useless : {"", "0", "-5", "soon", "1e300", "nan", "inf", "Sun, 06 Nov 1994 08:49:00 GMT"})
    EXPECT_EQ(delay({{"retry-after", useless}}), std::nullopt) << useless;
  EXPECT_EQ(delay({}), std::nullopt);
}

TEST(Retry, the_default_delay_doubles_up_to_its_limit) {
  RetryPolicy policy;
  using ms = std::chrono::milliseconds;
  EXPECT_EQ(default_delay(policy, 0, 0), ms(500));
  EXPECT_EQ(default_delay(policy, 1, 0), ms(1000));
  EXPECT_EQ(default_delay(policy, 3, 0), ms(4000));
  EXPECT_EQ(default_delay(policy, 30, 0), ms(8000));
  EXPECT_EQ(default_delay(policy, 0, 0.999), ms(375));
  std::stop_source stop;
  stop.request_stop();
  EXPECT_FALSE(wait_for(std::chrono::hours(1), stop.get_token()));
}

TEST(Url, only_plain_http_addresses) {
  EXPECT_EQ(model_address("http://localhost:11434/v1/")->path, "/v1");
  EXPECT_EQ(model_address("https://api.example")->host, "api.example");
  for (const char* bad :
       {"", "localhost", "ftp://x", "file:///etc/passwd", "http://u:p@host/", "http://host/?q=1", "http://"})
    EXPECT_FALSE(model_address(bad)) << bad;
  for (const char* here : {"localhost", "127.0.0.1", "[::1]", "a.localhost"})
    EXPECT_TRUE(is_loopback(here)) << here;
  for (const char* there : {"localhost.example", "10.0.0.1", "128.0.0.1"})
    EXPECT_FALSE(is_loopback(there)) << there;
}

}  // namespace
}  // namespace anchorhold::agent
