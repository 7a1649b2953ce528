// The desktop's Secret Service. libsecret encrypts what passes on the bus, and keeps it in pages that are not
// swapped.
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <libsecret/secret.h>
#include <mutex>
#include <thread>

#include "vault/credential.h"
#include "vault/secret_store.h"

namespace anchorhold::vault {
namespace {

// A person may have to unlock the key ring, and to find out why; a request of a guest does not wait that
// long.
constexpr std::chrono::seconds answer_limit(120), request_limit(25);
constexpr int start_limit_ms = 10'000;
constexpr const char* bus_name = "org.freedesktop.secrets";

const SecretSchema& schema() {
  static const SecretSchema made = [] {
    SecretSchema schema{};
    schema.name = "org.anchorhold.Credential";
    schema.flags = SECRET_SCHEMA_NONE;
    schema.attributes[0] = {"name", SECRET_SCHEMA_ATTRIBUTE_STRING};
    return schema;
  }();
  return made;
}

template <auto release>
struct Release {
  template <typename T>
  void operator()(T* object) const {
    release(object);
  }
};
using GObjectPointer = std::unique_ptr<GCancellable, Release<g_object_unref>>;
using Attributes = std::unique_ptr<GHashTable, Release<g_hash_table_unref>>;
using Value = std::unique_ptr<SecretValue, Release<secret_value_unref>>;

// Cancels a call that takes too long.
class AnswerLimit {
 public:
  explicit AnswerLimit(std::chrono::seconds limit = answer_limit)
      : cancellable_(g_cancellable_new()), thread_([this, limit] {
          std::unique_lock lock(mutex_);
          if (!changed_.wait_for(lock, limit, [this] { return done_; }))
            g_cancellable_cancel(cancellable_.get());
        }) {}
  ~AnswerLimit() {
    {
      std::lock_guard lock(mutex_);
      done_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  GCancellable* get() const { return cancellable_.get(); }

 private:
  GObjectPointer cancellable_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

// Takes the error.
tl::unexpected<Error> service_error(GError* error, std::string_view what) {
  bool in_time = !error || !g_error_matches(error, G_IO_ERROR, G_IO_ERROR_CANCELLED);
  std::string why = !in_time ? "it did not answer in time" : error ? error->message : "no reason was given";
  g_clear_error(&error);
  return fail(in_time ? ErrorCode::unavailable : ErrorCode::deadline_exceeded,
              fmt::format("the Secret Service could not {}: {}", what, why),
              "unlock the key ring of the desktop and try again, or keep secrets in a file: anchorhold "
              "credential add --store file");
}

Attributes attributes_of(const std::string& name) {
  return Attributes(secret_attributes_build(&schema(), "name", name.c_str(), nullptr));
}

class ServiceStore final : public SecretStore {
 public:
  Status put(const std::string& name, const Secret& secret) override {
    AnswerLimit limit;
    auto attributes = attributes_of(name);
    Value value(secret_value_new(secret.expose().data(), static_cast<gssize>(secret.size()), "text/plain"));
    GError* error = nullptr;
    auto label = fmt::format("anchorhold: {}", name);
    if (!secret_password_storev_binary_sync(&schema(), attributes.get(), SECRET_COLLECTION_DEFAULT,
                                            label.c_str(), value.get(), limit.get(), &error))
      return service_error(error, "store a secret");
    return {};
  }

  Result<Secret> get(const std::string& name) override {
    AnswerLimit limit(request_limit);
    auto attributes = attributes_of(name);
    GError* error = nullptr;
    Value value(secret_password_lookupv_binary_sync(&schema(), attributes.get(), limit.get(), &error));
    if (error) return service_error(error, "give out a secret");
    if (!value)
      return fail(ErrorCode::not_found, fmt::format("the Secret Service has no secret for {}", name));
    gsize size = 0;
    const char* bytes = secret_value_get(value.get(), &size);
    if (size > max_secret_bytes) return fail(ErrorCode::data_loss, "the Secret Service gave something else");
    return Secret::of({bytes, size});
  }

  Status remove(const std::string& name) override {
    AnswerLimit limit;
    auto attributes = attributes_of(name);
    GError* error = nullptr;
    secret_password_clearv_sync(&schema(), attributes.get(), limit.get(), &error);
    if (error) return service_error(error, "remove a secret");
    return {};
  }

  // A lookup unlocks what it finds; here it is everything of ours.
  Status unlock() override {
    AnswerLimit limit;
    GError* error = nullptr;
    Attributes none(secret_attributes_build(&schema(), nullptr));
    auto flags = static_cast<SecretSearchFlags>(SECRET_SEARCH_ALL | SECRET_SEARCH_UNLOCK);
    GList* found = secret_service_search_sync(nullptr, &schema(), none.get(), flags, limit.get(), &error);
    g_list_free_full(found, g_object_unref);
    if (error) return service_error(error, "unlock the secrets");
    return {};
  }

  Status protect(const std::optional<Secret>&) override {
    return fail(ErrorCode::failed_precondition, "the desktop's key ring has a password of its own",
                "change it in the desktop's program for passwords and keys");
  }
};

// Without one, GLib would try to start a bus of its own.
bool has_session_bus() {
  if (const char* address = std::getenv("DBUS_SESSION_BUS_ADDRESS"); address && *address) return true;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  std::error_code error;
  return runtime && *runtime && std::filesystem::exists(std::filesystem::path(runtime) / "bus", error);
}

}  // namespace

Result<std::unique_ptr<SecretStore>> open_secret_service() {
  auto none = [](std::string_view why) {
    return fail(ErrorCode::unavailable, fmt::format("no Secret Service runs here: {}", why),
                "log in to the desktop, or keep secrets in a file: anchorhold credential add --store file");
  };
  if (!has_session_bus()) return none("there is no session bus");
  GError* error = nullptr;
  // Kept for ever: the connection is one for the whole process, and by default its loss would end that.
  static std::mutex mutex;
  static GDBusConnection* connection = nullptr;
  std::lock_guard lock(mutex);
  if (!connection) {
    connection = g_bus_get_sync(G_BUS_TYPE_SESSION, nullptr, &error);
    if (!connection) {
      std::string why = error->message;
      g_clear_error(&error);
      return none(why);
    }
    g_dbus_connection_set_exit_on_close(connection, FALSE);
  }
  // Answers at once when it runs; starts it when the bus knows how.
  GVariant* started = g_dbus_connection_call_sync(connection, "org.freedesktop.DBus", "/org/freedesktop/DBus",
                                                  "org.freedesktop.DBus", "StartServiceByName",
                                                  g_variant_new("(su)", bus_name, 0u), G_VARIANT_TYPE("(u)"),
                                                  G_DBUS_CALL_FLAGS_NONE, start_limit_ms, nullptr, &error);
  if (!started) {
    std::string why = error->message;
    g_clear_error(&error);
    return none(why);
  }
  g_variant_unref(started);
  return std::make_unique<ServiceStore>();
}

}  // namespace anchorhold::vault
