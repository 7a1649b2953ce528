#include "guest_calls.h"

#include <algorithm>

namespace anchorhold::session {

std::unique_ptr<OutputCall> OutputCall::start(const GuestChannel& channel, std::shared_ptr<CallSync> sync,
                                              const std::string& exec_id, OutputStream stream) {
  auto call = std::make_unique<OutputCall>();
  call->channel_ = &channel;
  call->sync_ = std::move(sync);
  call->request_.set_exec_id(exec_id);
  call->request_.set_stream(to_wire(stream));
  call->request_.set_await_start(true);
  call->channel_->stub->async()->ReadOutput(&call->context_, &call->request_, call.get());
  // Between two reads there is no operation that keeps the call from being done.
  call->AddHold();
  call->StartRead(&call->chunk_);
  call->StartCall();
  return call;
}

std::string OutputCall::take() {
  std::string data;
  {
    std::lock_guard lock(sync_->mutex);
    data = std::move(chunks_.front());
    chunks_.pop_front();
    if (reading_ || !held_ || abandoned_) return data;
    reading_ = true;
  }
  StartRead(&chunk_);
  return data;
}

void OutputCall::abandon() {
  bool release = false;
  {
    std::lock_guard lock(sync_->mutex);
    if (std::exchange(abandoned_, true)) return;
    // A read that is under way lets go itself, when it fails.
    release = !reading_ && std::exchange(held_, false);
  }
  context_.TryCancel();
  if (release) RemoveHold();
}

void OutputCall::OnReadDone(bool ok) {
  bool release = false;
  bool again = false;
  {
    std::lock_guard lock(sync_->mutex);
    if (ok && !abandoned_) {
      if (!chunk_.data().empty()) chunks_.push_back(std::move(*chunk_.mutable_data()));
      again = chunks_.size() < most_chunks;
      reading_ = again;
    } else {
      reading_ = false;
      release = std::exchange(held_, false);
    }
  }
  sync_->changed.notify_all();
  if (again) StartRead(&chunk_);
  if (release) RemoveHold();
}

void OutputCall::OnDone(const grpc::Status& status) {
  auto sync = sync_;
  std::lock_guard lock(sync->mutex);
  done_ = true;
  status_ = status;
  gone_ = true;
  sync->changed.notify_all();
}

std::unique_ptr<InputCall> InputCall::start(const GuestChannel& channel, std::shared_ptr<CallSync> sync,
                                            const std::string& exec_id) {
  auto call = std::make_unique<InputCall>();
  call->channel_ = &channel;
  call->sync_ = std::move(sync);
  call->exec_id_ = exec_id;
  call->channel_->stub->async()->WriteInput(&call->context_, &call->reply_, call.get());
  call->AddHold();
  call->StartCall();
  return call;
}

// Why nothing more can be written; the mutex is held.
Status InputCall::ended() {
  if (!done_ || status_.ok())
    return fail(ErrorCode::failed_precondition, "the command no longer reads its input");
  return fail(channel_->error(status_));
}

Status InputCall::write(std::string_view bytes, std::stop_token stop) {
  do {
    std::string_view piece = bytes.substr(0, max_chunk_bytes);
    bytes.remove_prefix(piece.size());
    std::unique_lock lock(sync_->mutex);
    // A write that a stop token left behind is still under way.
    if (!sync_->changed.wait(lock, stop, [this] { return !writing_ || done_; }))
      return fail(ErrorCode::cancelled, "stopped while writing a command's input");
    if (failed_ || done_ || !held_) {
      sync_->changed.wait(lock, stop, [this] { return done_ || !failed_; });
      return ended();
    }
    chunk_.Clear();
    if (std::exchange(first_, false)) {
      chunk_.set_exec_id(exec_id_);
      chunk_.set_await_start(true);
    }
    chunk_.set_data(std::string(piece));
    writing_ = true;
    lock.unlock();
    StartWrite(&chunk_);
    lock.lock();
    if (!sync_->changed.wait(lock, stop, [this] { return !writing_ || done_; }))
      return fail(ErrorCode::cancelled, "stopped while writing a command's input");
    if (failed_) {
      sync_->changed.wait(lock, stop, [this] { return done_; });
      return ended();
    }
  } while (!bytes.empty());
  return {};
}

void InputCall::close() {
  {
    std::unique_lock lock(sync_->mutex);
    sync_->changed.wait(lock, [this] { return !writing_ || done_; });
    if (!std::exchange(held_, false)) return;
  }
  if (std::exchange(first_, false)) {
    chunk_.Clear();
    chunk_.set_exec_id(exec_id_);
    chunk_.set_await_start(true);
    StartWriteLast(&chunk_, grpc::WriteOptions());
  } else {
    StartWritesDone();
  }
  RemoveHold();
}

void InputCall::abandon() {
  bool release = false;
  {
    std::lock_guard lock(sync_->mutex);
    abandoned_ = true;
    // A write that is under way, or just about to be, lets go itself.
    release = !writing_ && std::exchange(held_, false);
  }
  context_.TryCancel();
  if (release) RemoveHold();
}

void InputCall::OnWriteDone(bool ok) {
  bool release = false;
  {
    std::lock_guard lock(sync_->mutex);
    writing_ = false;
    if (!ok) failed_ = true;
    release = (!ok || abandoned_) && std::exchange(held_, false);
  }
  sync_->changed.notify_all();
  if (release) RemoveHold();
}

void InputCall::OnDone(const grpc::Status& status) {
  auto sync = sync_;
  std::lock_guard lock(sync->mutex);
  done_ = true;
  status_ = status;
  gone_ = true;
  sync->changed.notify_all();
}

std::unique_ptr<ExecCall> ExecCall::start(const GuestChannel& channel, std::shared_ptr<CallSync> sync,
                                          wire::ExecRequest request) {
  auto call = std::make_unique<ExecCall>();
  call->channel_ = &channel;
  call->sync_ = std::move(sync);
  call->request_ = std::move(request);
  call->channel_->stub->async()->Exec(&call->context_, &call->request_, call.get());
  call->StartRead(&call->event_);
  call->StartCall();
  return call;
}

std::unique_ptr<ExecCall> ExecCall::refused(std::shared_ptr<CallSync> sync, ExecStatus status) {
  auto call = std::make_unique<ExecCall>();
  call->sync_ = std::move(sync);
  call->started_ = call->done_ = call->gone_ = true;
  call->result_ = std::move(status);
  return call;
}

void ExecCall::when_done(std::function<void()> callback) {
  {
    std::lock_guard lock(sync_->mutex);
    if (!done_) {
      done_callback_ = std::move(callback);
      return;
    }
  }
  callback();
}

void ExecCall::OnReadDone(bool ok) {
  if (!ok) return;
  {
    std::lock_guard lock(sync_->mutex);
    started_ = true;
    if (event_.has_exited()) result_ = from_wire(event_.exited());
  }
  sync_->changed.notify_all();
  StartRead(&event_);
}

void ExecCall::OnDone(const grpc::Status& status) {
  auto sync = sync_;
  std::function<void()> callback;
  {
    std::lock_guard lock(sync->mutex);
    done_ = true;
    status_ = status;
    callback = std::move(done_callback_);
    sync->changed.notify_all();
  }
  if (callback) callback();
  std::lock_guard lock(sync->mutex);
  gone_ = true;
  sync->changed.notify_all();
}

}  // namespace anchorhold::session
