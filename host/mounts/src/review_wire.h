// What anchorhold-ledger says: one JSON object a line. Bytes that are not UTF-8 are told in hexadecimal
// beside what can be shown ("path", "path_hex"). Whoever reads it believes nothing: the process looks at
// hostile files.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "mounts/review.h"

namespace anchorhold::mounts {

inline constexpr std::size_t max_review_line_bytes = 1 << 20;
inline constexpr std::size_t max_review_lines = 300'000;

void put_bytes(nlohmann::ordered_json& object, const char* key, std::string_view bytes);

std::string encode(const Change& change);
std::string encode(const UndoRecord& undo);
std::string encode(const UndoStep& step);
std::string encode(const UndoRefusal& refusal);
// Of a review: the numbers at its end; of an undo: its number.
std::string encode_end(const Review& review);
std::string encode_end(const UndoOutcome& outcome);
std::string encode_error(const Error& error);

// Takes one line into the result. True: it was the last. An error: it was one, or it is none of ours.
Result<bool> decode_line(std::string_view line, Review& review);
Result<bool> decode_line(std::string_view line, UndoOutcome& outcome);

}  // namespace anchorhold::mounts
