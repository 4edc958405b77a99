#pragma once
// Why a decision of the log was made, what was missing for the other one, and how much the rule
// that would change it allows. Pure: a record comes in, sentences go out.

#include <string>

#include "audit/record.h"
#include "base/result.h"

namespace sandbox::cli {

// The ID of a decision is NAME:SEQ, SEQ as `policy log` shows it behind "#". NAME alone is its last
// denial.
struct DecisionId {
  std::string sandbox;
  uint64_t seq = 0;  // 0: the last denial
};
Result<DecisionId> parse_decision_id(std::string_view text);

struct Explanation {
  std::string why = {};
  std::string rule = {};     // an allow rule that would let it pass; empty where none does
  std::string reach = {};    // how much that rule allows, or the one that let it pass
  std::string instead = {};  // what helps where no rule does; may be empty
};
Explanation explain(const audit::Record& record);

}  // namespace sandbox::cli
