// SQLite with our errors: open, run, bind, step. For the host's own state (event log, sessions, tasks). A
// database or a statement belongs to one thread at a time; a statement must not outlive its database.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace anchorhold::database {

class Statement {
 public:
  // Parameters are numbered from 1. Bytes are copied.
  Statement& bind(int parameter, std::int64_t value);
  Statement& bind(int parameter, std::string_view text);
  Statement& bind_blob(int parameter, std::string_view bytes);
  Statement& bind_null(int parameter);

  // True: there is a row; false: it is done. Errors of binding show up here.
  Result<bool> step();
  // For statements without rows; ready to be bound again afterwards.
  Status run();
  void reset();

  // Columns of the row, numbered from 0. Views live until the next step or reset.
  std::int64_t integer(int column) const;
  std::string_view text(int column) const;  // also blobs; NULL is empty
  bool is_null(int column) const;

 private:
  friend class Database;
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  std::unique_ptr<sqlite3_stmt, Finalize> statement_;
  int bind_result_ = 0;
};

class Database {
 public:
  enum class Mode { read_write, read_only };
  // read_write makes the file (0600) when it is not there and switches it to WAL. read_only needs an existing
  // file (not_found otherwise); it still takes part in the locking, so the folder must be the person's own.
  static Result<Database> open(const std::filesystem::path& file, Mode mode);

  // One or more statements without parameters or rows.
  Status run(const std::string& sql);
  Result<Statement> prepare(std::string_view sql);
  // The first column of the first row; nothing when there is no row or it is NULL.
  Result<std::optional<std::int64_t>> query_integer(std::string_view sql);

 private:
  struct Close {
    void operator()(sqlite3* handle) const;
  };
  explicit Database(sqlite3* handle) : handle_(handle) {}
  std::unique_ptr<sqlite3, Close> handle_;
};

// BEGIN IMMEDIATE … COMMIT; rolled back when it goes out of scope without commit().
class Transaction {
 public:
  static Result<Transaction> begin(Database& database);
  Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  Status commit();

 private:
  explicit Transaction(Database& database) : database_(&database) {}
  Database* database_;
};

}  // namespace anchorhold::database
