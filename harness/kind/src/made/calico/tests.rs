//! Calico's installation against an API server that is really there, with the controllers and kubelets that it lacks played by the tests.

mod cluster;
mod manifest;
mod operator;
mod trouble;
