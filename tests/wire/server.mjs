// A server that speaks the Messages API and chat completions, for tests. What it answers is chosen by the request's
// model: "SCENARIO" or "SCENARIO#anything" (the part after # keeps counters of tests apart). Requests are judged as
// strictly as the real services judge them. A path that begins with /splitN sends the answer N bytes at a time.
//
// Prints its port on the first line of standard output; ends when standard input ends.
import http from "node:http";
import { anthropicScenarios, judgeAnthropic } from "./anthropic_scenarios.mjs";
import { openaiScenarios, judgeOpenai } from "./openai_scenarios.mjs";

const counts = new Map();
const seen = new Map();

function refuse(response, wire, { status, type, message, headers = {} }) {
  const error = { type, message };
  const body = wire === "anthropic" ? { type: "error", error } : { error: { ...error, code: type } };
  response.writeHead(status, { "content-type": "application/json", ...headers });
  response.end(JSON.stringify(body));
}

async function write(response, bytes, piece) {
  for (let at = 0; at < bytes.length; at += piece) {
    if (response.destroyed) return;
    response.write(bytes.subarray(at, at + piece));
    await new Promise((resume) => setImmediate(resume));
  }
}

// An answer is {status…} for a refusal, {json} for a whole one, or {events, then}: raw text, and what follows it —
// "end", "drop" (the connection is cut), or "hang" (nothing more comes).
async function answer(response, wire, given, piece) {
  if (given.status) return refuse(response, wire, given);
  if (given.json) {
    response.writeHead(200, { "content-type": "application/json" });
    return response.end(JSON.stringify(given.json));
  }
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  response.flushHeaders();
  await write(response, Buffer.from(given.events), piece);
  if (given.then === "drop") response.socket?.destroy();
  else if (given.then !== "hang") response.end();
}

const wires = {
  "/v1/messages": ["anthropic", anthropicScenarios, judgeAnthropic],
  "/v1/chat/completions": ["openai", openaiScenarios, judgeOpenai],
};

async function serve(request, response) {
  let body = "";
  for await (const piece of request) body += piece;
  if (request.url === "/seen") return response.end(JSON.stringify(seen.get(JSON.parse(body).model) ?? null));
  const split = request.url.match(/^\/split(\d+)(\/.*)$/);
  const wire = wires[split ? split[2] : request.url];
  if (!wire) return refuse(response, "anthropic", { status: 404, type: "not_found_error", message: "no such path: " + request.url });
  const [name, scenarios, judge] = wire;
  let sent;
  try {
    sent = JSON.parse(body);
  } catch {
    return refuse(response, name, { status: 400, type: "invalid_request_error", message: "not JSON" });
  }
  const count = (counts.get(name + sent.model) ?? 0) + 1;
  counts.set(name + sent.model, count);
  seen.set(sent.model, { count, headers: request.headers, body: sent });
  const fault = judge(sent, request.headers);
  if (fault) return refuse(response, name, { status: 400, type: "invalid_request_error", message: fault });
  const scenario = scenarios[sent.model.split("#")[0]];
  if (!scenario) return refuse(response, name, { status: 404, type: "not_found_error", message: "model: " + sent.model });
  await answer(response, name, scenario(sent, count), split ? Number(split[1]) : 1 << 20);
}

const server = http.createServer((request, response) => {
  serve(request, response).catch((error) => {
    console.error(error);
    response.destroy();
  });
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
