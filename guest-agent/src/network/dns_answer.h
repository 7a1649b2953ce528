// The answer to one DNS query (RFC 1035). Every name that can be a host has one synthetic address, as IPv4
// and as IPv6; of everything else it is said that it is not there. Nothing is ever asked of anybody. Pure.
// The C library reads the message; a query that it cannot read gets no answer or FORMERR.
#pragma once

#include <string>
#include <string_view>

#include "names.h"

namespace anchorhold::guest {

// Empty: nothing is to be sent.
std::string answer_query(std::string_view query, NameTable& names, NameTable::Time now);

// Lower case, without a final dot; empty when it cannot be a host's name.
std::string host_name(std::string_view text);

}  // namespace anchorhold::guest
