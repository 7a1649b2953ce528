#include "session/guest_client.h"

#include <algorithm>

#include "guest_state.h"
#include "vsock/channel.h"

namespace anchorhold::session {
namespace {

constexpr std::uint32_t lowest_protocol = 1;
constexpr std::uint32_t highest_protocol = 2;
// How much of an output may wait here for its reader.
constexpr std::size_t output_window_bytes = 256 * 1024;
// Arguments of a command are at most 2 MiB; the guest's answers are lists of at most a few hundred kilobytes.
constexpr std::size_t most_message_bytes = 4u << 20;
constexpr std::chrono::seconds start_limit{60};

GuestInfo info_of(const wire::HelloReply& reply) {
  GuestInfo info;
  info.protocol = reply.protocol();
  info.version = reply.guest_version();
  info.kernel = reply.kernel();
  info.default_uid = reply.default_uid();
  info.memory = {reply.memory_bytes()};
  info.cpus = reply.cpus();
  info.tree_kill = reply.tree_kill();
  info.memory_limits = reply.memory_limits();
  info.process_limits = reply.process_limits();
  info.boot_time = std::chrono::nanoseconds(static_cast<std::int64_t>(reply.boot_monotonic_ns()));
  return info;
}

}  // namespace

GuestClient::GuestClient(std::shared_ptr<State> state) : state_(std::move(state)) {}
GuestClient::~GuestClient() = default;

Result<std::unique_ptr<GuestClient>> GuestClient::connect(UniqueFd stream, GuestClientSpec spec) {
  auto state = std::make_shared<State>();
  state->channel = std::make_shared<GuestChannel>();
  state->channel->stream = ANCHORHOLD_TRY(duplicate(stream.get()));
  vsock::ChannelLimits limits;
  limits.max_message_bytes = most_message_bytes;
  limits.stream_window_bytes = output_window_bytes;
  state->channel->channel = ANCHORHOLD_TRY(vsock::channel_from_stream(std::move(stream), limits));
  state->channel->stub = wire::Guest::NewStub(state->channel->channel);
  state->channel->lost_cause = std::move(spec.lost_cause);
  wire::HelloRequest request;
  request.mutable_protocol()->set_lowest(lowest_protocol);
  request.mutable_protocol()->set_highest(highest_protocol);
  request.set_host_version(ANCHORHOLD_VERSION);
  request.set_session_token(spec.session_token);
  auto reply = ANCHORHOLD_TRY(call(*state->channel, &wire::Guest::Stub::Hello, request, spec.hello_limit));
  if (reply.protocol() < lowest_protocol || reply.protocol() > highest_protocol)
    return fail(ErrorCode::failed_precondition,
                "the guest chose a protocol version that this host does not speak");
  state->info = info_of(reply);
  return std::unique_ptr<GuestClient>(new GuestClient(std::move(state)));
}

const GuestInfo& GuestClient::info() const {
  return state_->info;
}
bool GuestClient::lost() const {
  return state_->channel->lost();
}

Result<GuestClient::BackgroundStart> GuestClient::start_background(const BackgroundSpec& spec) {
  wire::ExecRequest request = ANCHORHOLD_TRY(to_wire(spec.exec));
  BackgroundStart start;
  start.id = ExecId("b-" + random_hex(8));
  request.set_exec_id(start.id.value());
  request.set_background(true);
  request.set_tail_bytes(static_cast<std::uint32_t>(std::min<std::uint64_t>(spec.tail.bytes, UINT32_MAX)));
  if (auto refused = refuse_too_long(request)) {
    start.failed = std::move(refused);
    return start;
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + start_limit);
  auto reader = state_->channel->stub->Exec(&context, request);
  wire::ExecEvent event;
  while (reader->Read(&event))
    if (event.has_exited()) start.failed = from_wire(event.exited());
  if (grpc::Status status = reader->Finish(); !status.ok()) return fail(state_->channel->error(status));
  return start;
}

namespace {

// One pass over a background output; ends early when max_bytes are there, or with `first_only` at the first
// bytes.
Status read_kept(const GuestChannel& channel, const wire::ReadOutputRequest& request, std::size_t max_bytes,
                 bool first_only, std::chrono::milliseconds limit, std::stop_token stop,
                 BackgroundOutput& output) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  CancelOnStop cancel(stop, context);
  auto reader = channel.stub->ReadOutput(&context, request);
  wire::OutputChunk chunk;
  bool enough = false;
  bool first = true;
  while (!enough && reader->Read(&chunk)) {
    if (std::exchange(first, false)) {
      output.offset = chunk.offset();
      output.dropped = chunk.offset() - request.from_offset();
    }
    output.at_end = chunk.at_end();
    output.bytes.append(chunk.data(), 0, max_bytes - output.bytes.size());
    enough = output.bytes.size() >= max_bytes || (first_only && !output.bytes.empty());
  }
  output.next_offset = output.offset + output.bytes.size();
  if (enough) context.TryCancel();
  grpc::Status status = reader->Finish();
  if (stop.stop_requested()) return fail(ErrorCode::cancelled, "stopped while waiting for a job's output");
  // Waiting for bytes that did not come is no failure.
  bool expected = enough || (first_only && status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
  if (!status.ok() && !expected) return fail(channel.error(status));
  return {};
}

}  // namespace

Result<BackgroundOutput> GuestClient::poll_output(const ExecId& id, OutputStream stream,
                                                  std::uint64_t from_offset, std::size_t max_bytes,
                                                  std::chrono::milliseconds wait, std::stop_token stop) {
  wire::ReadOutputRequest request;
  request.set_exec_id(id.value());
  request.set_stream(to_wire(stream));
  request.set_from_offset(from_offset);
  BackgroundOutput output;
  output.offset = from_offset;
  ANCHORHOLD_CHECK(read_kept(*state_->channel, request, max_bytes, false, control_limit, stop, output));
  if (!output.bytes.empty() || output.at_end || wait.count() <= 0) return output;
  request.set_follow(true);
  ANCHORHOLD_CHECK(read_kept(*state_->channel, request, max_bytes, true, wait, stop, output));
  return output;
}

Result<ExecStatus> GuestClient::wait_background(const ExecId& id, std::stop_token stop) {
  wire::WaitExecRequest request;
  request.set_exec_id(id.value());
  auto reply =
      ANCHORHOLD_TRY(call(*state_->channel, &wire::Guest::Stub::WaitExec, request, std::nullopt, stop));
  return from_wire(reply.status());
}

Status GuestClient::kill_background(const ExecId& id, bool forget) {
  wire::KillExecRequest request;
  request.set_exec_id(id.value());
  request.set_forget(forget);
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::KillExec, request));
  return {};
}

Result<std::vector<ExecInfo>> GuestClient::list_execs() {
  auto reply =
      ANCHORHOLD_TRY(call(*state_->channel, &wire::Guest::Stub::ListExecs, wire::ListExecsRequest()));
  std::vector<ExecInfo> execs;
  for (const auto& exec : reply.execs()) execs.push_back(from_wire(exec));
  return execs;
}

Status GuestClient::signal(const ExecId& id, int number, SignalScope scope) {
  wire::SignalExecRequest request;
  request.set_exec_id(id.value());
  request.set_signal(number);
  request.set_scope(to_wire(scope));
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::SignalExec, request));
  return {};
}

Result<std::chrono::nanoseconds> GuestClient::set_clock(WallTime now) {
  auto since_epoch = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch());
  wire::SetClockRequest request;
  request.set_unix_time_ns(since_epoch.count());
  auto reply = ANCHORHOLD_TRY(call(*state_->channel, &wire::Guest::Stub::SetClock, request));
  return std::chrono::nanoseconds(reply.previous_unix_time_ns()) - since_epoch;
}

Result<GuestStatistics> GuestClient::statistics() {
  auto reply =
      ANCHORHOLD_TRY(call(*state_->channel, &wire::Guest::Stub::GetStatistics, wire::GetStatisticsRequest()));
  GuestStatistics statistics;
  statistics.memory_total = {reply.memory_total_bytes()};
  statistics.memory_available = {reply.memory_available_bytes()};
  statistics.scratch_total = {reply.scratch_total_bytes()};
  statistics.scratch_used = {reply.scratch_used_bytes()};
  statistics.uptime = std::chrono::nanoseconds(static_cast<std::int64_t>(reply.uptime_ns()));
  statistics.load_1_minute = reply.load_1_minute();
  statistics.processes = reply.processes();
  statistics.agent_memory = {reply.agent_memory_bytes()};
  statistics.agent_threads = reply.agent_threads();
  for (const auto& exec : reply.execs()) statistics.execs.push_back(from_wire(exec));
  return statistics;
}

Result<std::string> GuestClient::mount(const std::string& tag, const std::string& name, MountMode mode) {
  wire::MountRequest request;
  request.set_tag(tag);
  request.set_name(name);
  request.set_read_only(mode == MountMode::read_only);
  return ANCHORHOLD_TRY(call(*state_->channel, &wire::Guest::Stub::Mount, request)).path();
}

Status GuestClient::unmount(const std::string& name, UnmountMode mode) {
  wire::UnmountRequest request;
  request.set_name(name);
  request.set_detach(mode == UnmountMode::detach);
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::Unmount, request));
  return {};
}

Status GuestClient::announce(const std::string& name, std::span<const ShareChange> changes) {
  wire::AnnounceRequest request;
  request.set_name(name);
  for (const auto& change : changes) {
    auto* wired = request.add_changes();
    wired->set_kind(static_cast<wire::HostChange::Kind>(static_cast<int>(change.kind) + 1));
    wired->set_object(static_cast<wire::HostChange::Object>(static_cast<int>(change.object) + 1));
    wired->set_path(change.path);
    wired->set_new_path(change.new_path);
  }
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::Announce, request));
  return {};
}

Status GuestClient::configure_network(const std::string& authority_pem) {
  constexpr std::uint32_t since = 2;
  if (state_->info.protocol < since)
    return fail(ErrorCode::failed_precondition, "the guest image is too old to have a way to the network",
                "build it again: anchorhold image build");
  wire::ConfigureNetworkRequest request;
  request.set_authority_pem(authority_pem);
  ANCHORHOLD_CHECK(call(*state_->channel, &wire::Guest::Stub::ConfigureNetwork, request));
  return {};
}

Status GuestClient::shutdown(std::chrono::milliseconds grace) {
  wire::ShutdownRequest request;
  request.set_grace_ms(static_cast<std::uint32_t>(std::clamp<std::int64_t>(grace.count(), 0, 60'000)));
  auto reply = call(*state_->channel, &wire::Guest::Stub::Shutdown, request, control_limit + grace);
  // The answer and the end of the guest race each other.
  if (!reply && reply.error().code != ErrorCode::unavailable) return fail(reply.error());
  return {};
}

}  // namespace anchorhold::session
