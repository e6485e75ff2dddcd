//! Images: pulled once, whole, and each trouble one line that says what to do.

mod kept;
mod machine;
mod refused;
mod registries;
