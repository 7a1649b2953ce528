#include "database/database.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sqlite3.h>

#include "base/fd.h"

namespace anchorhold::database {
namespace {

// Another process of the same person may hold the write lock for as long as a disk takes to sync.
constexpr int busy_limit_ms = 20'000;

ErrorCode code_of(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return ErrorCode::data_loss;
    case SQLITE_FULL:
      return ErrorCode::resource_exhausted;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return ErrorCode::unavailable;
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      return ErrorCode::permission_denied;
    case SQLITE_CANTOPEN:
      return ErrorCode::not_found;
    case SQLITE_CONSTRAINT:
      return ErrorCode::failed_precondition;
    default:
      return ErrorCode::internal;
  }
}

tl::unexpected<Error> failure(sqlite3* handle, int sqlite_code) {
  const char* file = handle ? sqlite3_db_filename(handle, "main") : nullptr;
  return fail(code_of(sqlite_code),
              fmt::format("{}: {}", file && *file ? file : "database",
                          handle ? sqlite3_errmsg(handle) : sqlite3_errstr(sqlite_code)));
}

}  // namespace

void Statement::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}
void Database::Close::operator()(sqlite3* handle) const {
  sqlite3_close(handle);
}

Statement& Statement::bind(int parameter, std::int64_t value) {
  if (int result = sqlite3_bind_int64(statement_.get(), parameter, value)) bind_result_ = result;
  return *this;
}

Statement& Statement::bind(int parameter, std::string_view text) {
  if (int result = sqlite3_bind_text64(statement_.get(), parameter, text.data() ? text.data() : "",
                                       text.size(), SQLITE_TRANSIENT, SQLITE_UTF8))
    bind_result_ = result;
  return *this;
}

Statement& Statement::bind_blob(int parameter, std::string_view bytes) {
  if (int result = sqlite3_bind_blob64(statement_.get(), parameter, bytes.data() ? bytes.data() : "",
                                       bytes.size(), SQLITE_TRANSIENT))
    bind_result_ = result;
  return *this;
}

Statement& Statement::bind_null(int parameter) {
  if (int result = sqlite3_bind_null(statement_.get(), parameter)) bind_result_ = result;
  return *this;
}

Result<bool> Statement::step() {
  sqlite3* handle = sqlite3_db_handle(statement_.get());
  if (bind_result_ != SQLITE_OK) return failure(handle, bind_result_);
  int result = sqlite3_step(statement_.get());
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  auto error = failure(handle, result);
  sqlite3_reset(statement_.get());
  return error;
}

Status Statement::run() {
  auto stepped = step();
  reset();
  if (!stepped) return fail(std::move(stepped).error());
  return {};
}

void Statement::reset() {
  sqlite3_reset(statement_.get());
  bind_result_ = SQLITE_OK;
}

std::int64_t Statement::integer(int column) const {
  return sqlite3_column_int64(statement_.get(), column);
}

std::string_view Statement::text(int column) const {
  const void* bytes = sqlite3_column_blob(statement_.get(), column);
  int size = sqlite3_column_bytes(statement_.get(), column);
  return bytes ? std::string_view(static_cast<const char*>(bytes), static_cast<std::size_t>(size))
               : std::string_view();
}

bool Statement::is_null(int column) const {
  return sqlite3_column_type(statement_.get(), column) == SQLITE_NULL;
}

Result<Database> Database::open(const std::filesystem::path& file, Mode mode) {
  if (mode == Mode::read_write) {
    // SQLite would make it readable by others. An existing file is not opened here: closing it again would
    // drop the locks that other connections of this process hold on it (fcntl(2), "Advisory record locking").
    UniqueFd made(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!made && errno != EEXIST) return fail_errno(errno, file.string());
  }
  sqlite3* handle = nullptr;
  int flags =
      (mode == Mode::read_write ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_FULLMUTEX;
  int result = sqlite3_open_v2(file.c_str(), &handle, flags, nullptr);
  Database database(handle);
  if (result != SQLITE_OK) {
    if (code_of(result) == ErrorCode::not_found)
      return fail(ErrorCode::not_found, file.string() + " cannot be opened");
    return failure(handle, result);
  }
  sqlite3_busy_timeout(handle, busy_limit_ms);
  // What is sorted stays in memory: a sealed process has no folder for temporary files, and rows would be
  // written outside the database's own.
  ANCHORHOLD_CHECK(database.run("PRAGMA temp_store=MEMORY"));
  if (mode == Mode::read_write)
    ANCHORHOLD_CHECK(database.run("PRAGMA journal_mode=WAL; PRAGMA foreign_keys=ON;"));
  return database;
}

Status Database::run(const std::string& sql) {
  if (int result = sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr); result != SQLITE_OK)
    return failure(handle_.get(), result);
  return {};
}

Result<Statement> Database::prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  int result =
      sqlite3_prepare_v2(handle_.get(), sql.data(), static_cast<int>(sql.size()), &statement, nullptr);
  if (result != SQLITE_OK) return failure(handle_.get(), result);
  return Statement(statement);
}

Result<std::optional<std::int64_t>> Database::query_integer(std::string_view sql) {
  Statement statement = ANCHORHOLD_TRY(prepare(sql));
  bool row = ANCHORHOLD_TRY(statement.step());
  if (!row || statement.is_null(0)) return std::optional<std::int64_t>();
  return std::optional<std::int64_t>(statement.integer(0));
}

Result<Transaction> Transaction::begin(Database& database) {
  ANCHORHOLD_CHECK(database.run("BEGIN IMMEDIATE"));
  return Transaction(database);
}

Transaction::~Transaction() {
  if (database_) (void)database_->run("ROLLBACK");
}

Status Transaction::commit() {
  ANCHORHOLD_CHECK(database_->run("COMMIT"));
  database_ = nullptr;
  return {};
}

}  // namespace anchorhold::database
