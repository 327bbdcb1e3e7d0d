//! Every reference against answers that do not come from it: golden vectors, closed forms, definitions worked
//! out in the test, and relations. One binary, so that a change of a reference links once.

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
