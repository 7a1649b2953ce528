// What the server answers as the Messages API. Shapes: the API's reference and its streaming guide.
const event = (name, data) => `event: ${name}\ndata: ${JSON.stringify({ type: name, ...data })}\n\n`;

const usage = { input_tokens: 25, cache_creation_input_tokens: 7, cache_read_input_tokens: 5, output_tokens: 1 };
const start = (model) =>
  event("message_start", {
    message: { id: "msg_1", type: "message", role: "assistant", model, content: [], stop_reason: null, stop_sequence: null, usage },
  });
const stop = (reason, sequence = null) =>
  event("message_delta", { delta: { stop_reason: reason, stop_sequence: sequence }, usage: { output_tokens: 15 } }) + event("message_stop", {});

const block = (index, begin, deltas) =>
  event("content_block_start", { index, content_block: begin }) +
  deltas.map((delta) => event("content_block_delta", { index, delta })).join("") +
  event("content_block_stop", { index });
const text = (index, ...parts) => block(index, { type: "text", text: "" }, parts.map((part) => ({ type: "text_delta", text: part })));
const tool = (index, id, name, ...parts) =>
  block(index, { type: "tool_use", id, name, input: {} }, parts.map((part) => ({ type: "input_json_delta", partial_json: part })));
const thinking = (index) =>
  block(index, { type: "thinking", thinking: "", signature: "" }, [
    { type: "thinking_delta", thinking: "Let me " },
    { type: "thinking_delta", thinking: "see… \u{1F9EE}" },
    { type: "signature_delta", signature: "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pk=" },
  ]);

const ping = event("ping", {});
const whole = (model, blocks, reason) => ({ events: start(model) + ping + blocks + stop(reason), then: "end" });
const simple = (model, reason = "end_turn") => whole(model, text(0, "Hel", "lo ", "wörld \u{1F30D}!"), reason);

const lastBlocks = (body) => {
  const content = body.messages[body.messages.length - 1].content;
  return typeof content === "string" ? [{ type: "text", text: content }] : content;
};

const onceThen = (refusal) => (body, count) => (count === 1 ? refusal : simple(body.model));

export const anthropicScenarios = {
  text: (body) => simple(body.model),
  thinking: (body) => whole(body.model, thinking(0) + text(1, "42"), "end_turn"),
  redacted: (body) => whole(body.model, block(0, { type: "redacted_thinking", data: "EmwKAhgBEgy3va3pzix" }, []) + text(1, "ok"), "end_turn"),
  tools: (body) =>
    whole(body.model, text(0, "I look.") + tool(1, "toolu_1", "shell", '{"comm', 'and": "print \\u00e9', '"}') + tool(2, "toolu_2", "list", ""), "tool_use"),
  malformed: (body) => whole(body.model, tool(0, "toolu_1", "shell", '{"command": "pri'), "tool_use"),
  unknown: (body) => ({
    events:
      start(body.model) + event("brand_new_event", { x: 1 }) + ": a comment\n\n" +
      block(0, { type: "hologram", beam: "", power: 3 }, [{ type: "beam_delta", beam: "zz" }, { type: "beam_delta", beam: "ap" }]) +
      block(1, { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: {} }, [{ type: "input_json_delta", partial_json: '{"query":"x"}' }]) +
      text(2, "done") + stop("end_turn"),
    then: "end",
  }),
  cited: (body) =>
    whole(body.model, block(0, { type: "text", text: "" }, [
      { type: "citations_delta", citation: { type: "char_location", cited_text: "a", document_index: 0, document_title: "t", start_char_index: 0, end_char_index: 1 } },
      { type: "text_delta", text: "as said" }]), "end_turn"),
  "stop-end_turn": (body) => simple(body.model, "end_turn"),
  "stop-max_tokens": (body) => simple(body.model, "max_tokens"),
  "stop-stop_sequence": (body) => simple(body.model, "stop_sequence"),
  "stop-pause_turn": (body) => simple(body.model, "pause_turn"),
  "stop-refusal": (body) => ({
    events:
      start(body.model) + text(0, "I can") +
      event("message_delta", {
        delta: { stop_reason: "refusal", stop_sequence: null, stop_details: { type: "refusal", category: "cyber", explanation: "It looks like malware." } },
        usage: { output_tokens: 3 },
      }) + event("message_stop", {}),
    then: "end",
  }),
  "stop-model_context_window_exceeded": (body) => simple(body.model, "model_context_window_exceeded"),
  "stop-something_new": (body) => simple(body.model, "something_new"),
  "rate-limit-once": onceThen({ status: 429, type: "rate_limit_error", message: "slow down", headers: { "retry-after-ms": "20" } }),
  "overloaded-once": onceThen({ status: 529, type: "overloaded_error", message: "Overloaded", headers: { "retry-after-ms": "20" } }),
  "server-error-once": onceThen({ status: 500, type: "api_error", message: "oops", headers: { "retry-after-ms": "20" } }),
  "told-not-to-retry": onceThen({ status: 529, type: "overloaded_error", message: "Overloaded", headers: { "x-should-retry": "false" } }),
  "always-overloaded": () => ({ status: 529, type: "overloaded_error", message: "Overloaded", headers: { "retry-after-ms": "1" } }),
  "wait-an-hour": () => ({ status: 429, type: "rate_limit_error", message: "quota", headers: { "retry-after": "3600" } }),
  "bad-key": () => ({ status: 401, type: "authentication_error", message: "invalid x-api-key" }),
  "too-long": () => ({ status: 400, type: "invalid_request_error", message: "prompt is too long: 210000 tokens > 200000 maximum" }),
  "error-at-once": (body, count) => (count === 1 ? { events: event("error", { error: { type: "overloaded_error", message: "Overloaded" } }), then: "end" } : simple(body.model)),
  "error-midway": (body, count) =>
    count === 1
      ? { events: start(body.model) + text(0, "partly ") + event("error", { error: { type: "overloaded_error", message: "Overloaded" } }), then: "end" }
      : simple(body.model),
  "final-error-midway": (body) => ({ events: start(body.model) + text(0, "partly ") + event("error", { error: { type: "invalid_request_error", message: "no" } }), then: "end" }),
  "drop-midway": (body, count) => (count === 1 ? { events: start(body.model) + text(0, "partly "), then: "drop" } : simple(body.model)),
  "drop-before-stop": (body) => ({ events: start(body.model) + text(0, "all of it") + stop("end_turn").split("event: message_stop")[0], then: "drop" }),
  "always-drops": (body) => ({ events: start(body.model), then: "drop" }),
  "no-end": (body) => ({ events: start(body.model) + text(0, "and then"), then: "hang" }),
  garbage: () => ({ events: "event: message_start\ndata: {oops\n\n", then: "end" }),
  // One tool call, whose result it then repeats.
  agent: (body) => {
    const result = lastBlocks(body).find((part) => part.type === "tool_result");
    if (!result) return whole(body.model, thinking(0) + tool(1, "toolu_1", "shell", '{"command":"print from the guest"}'), "tool_use");
    return whole(body.model, text(0, "It said: " + result.content), "end_turn");
  },
};

const knownTop = new Set(["model", "max_tokens", "messages", "system", "tools", "stream", "metadata", "stop_sequences", "tool_choice", "thinking"]);
const knownIn = {
  text: ["type", "text", "cache_control", "citations"],
  tool_use: ["type", "id", "name", "input", "cache_control"],
  tool_result: ["type", "tool_use_id", "content", "is_error", "cache_control"],
  thinking: ["type", "thinking", "signature"],
  redacted_thinking: ["type", "data"],
};

function judgeBlock(part, where) {
  if (part.type === "text" && part.text === "") return `${where}: text content blocks must be non-empty`;
  if (part.type === "tool_use" && (typeof part.input !== "object" || Array.isArray(part.input))) return `${where}: input should be a valid dictionary`;
  const known = knownIn[part.type];
  if (!known) return ["hologram", "server_tool_use"].includes(part.type) ? undefined : `${where}: unknown type ${part.type}`;
  const extra = Object.keys(part).find((key) => !known.includes(key));
  return extra && `${where}.${extra}: Extra inputs are not permitted`;
}

function judgeMessages(messages) {
  let marks = 0;
  for (const [index, message] of messages.entries()) {
    if (!["user", "assistant"].includes(message.role)) return `messages.${index}.role: unknown`;
    const content = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
    if (!Array.isArray(content) || content.length === 0) return `messages.${index}: content must be non-empty`;
    for (const [at, part] of content.entries()) {
      const fault = judgeBlock(part, `messages.${index}.content.${at}`);
      if (fault) return fault;
      if (part.cache_control) marks++;
    }
    const uses = content.filter((part) => part.type === "tool_use").map((part) => part.id);
    if (uses.length > 0) {
      const next = messages[index + 1]?.content ?? [];
      const missing = uses.filter((id) => !(Array.isArray(next) && next.some((part) => part.type === "tool_result" && part.tool_use_id === id)));
      if (missing.length > 0) return `messages.${index}: tool_use ids were found without tool_result blocks immediately after: ${missing}`;
    }
  }
  if (marks > 4) return "A maximum of 4 blocks with cache_control may be provided";
  return undefined;
}

export function judgeAnthropic(body, headers) {
  // The newer version takes the key as a bearer token too, and no longer knows the sampling parameters.
  const version = headers["anthropic-version"];
  if (!["2023-06-01", "2026-10-21"].includes(version)) return "anthropic-version: header is required";
  const bearer = version === "2026-10-21" && headers.authorization?.startsWith("Bearer ");
  if (!headers["x-api-key"] && !bearer) return "x-api-key: header is required";
  if (!Number.isInteger(body.max_tokens) || body.max_tokens < 1) return "max_tokens: Field required";
  if (body.stream !== true) return "this test server only streams";
  const extra = Object.keys(body).find((key) => !knownTop.has(key));
  if (extra) return `${extra}: Extra inputs are not permitted`;
  for (const tool of body.tools ?? []) {
    if (!/^[a-zA-Z0-9_-]{1,128}$/.test(tool.name) || tool.input_schema?.type !== "object") return "tools: invalid";
  }
  return judgeMessages(body.messages ?? []) || undefined;
}
