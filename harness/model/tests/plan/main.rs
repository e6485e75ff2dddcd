//! From a scenario to cases: who plays an agent, which cells there are, which versions are left out.

mod agents;
mod families;
mod matrix;
mod planned;
mod real_clusters;
mod versions;
