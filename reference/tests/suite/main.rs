//! Every reference against answers that do not come from it: golden vectors, closed forms, definitions worked
//! out in the test, and relations. One binary, so that a change of a reference links once.
#![allow(clippy::disallowed_methods, reason = "the answers compared with are not the reference's")]

mod convolution;
mod copies;
mod draws;
mod elementwise;
mod fused_errors;
mod fused_step;
mod gated_delta_rule;
mod gates;
mod gdn_inputs;
mod golden;
mod kda;
mod kept_state;
mod measures;
mod registered;
mod speculative_round;
mod speculative_rows;
