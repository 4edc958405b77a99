#pragma once
// Small text helpers used everywhere.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"

namespace sandbox {

// What came from a guest may not drive a terminal: C0, DEL, C1 controls and bytes that are not
// UTF-8 become \xNN. Tab and newline too, unless keep_newlines.
std::string escape_terminal(std::string_view text, bool keep_newlines = false);

std::string to_hex(ByteView bytes);
std::optional<Bytes> from_hex(std::string_view text);  // lower or upper case, even length

// "a,b,,c" → {"a","b","","c"}; "" → {""}.
std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);  // ASCII white space on both ends
std::string to_lower(std::string_view text);   // ASCII only

// Decimal without sign, leading zeros, or trailing text; nullopt on overflow or anything else.
std::optional<uint64_t> parse_decimal(std::string_view text);

// The word of `known` closest to `word`, when close enough to be a likely typing error.
std::optional<std::string_view> suggest(std::string_view word,
                                        const std::vector<std::string_view>& known);

// 1536 → "1.5 KiB"
std::string format_size(uint64_t bytes);
// "4g", "512m", "1.5g", "4GiB", plain bytes; nullopt otherwise.
std::optional<uint64_t> parse_size(std::string_view text);

}  // namespace sandbox
