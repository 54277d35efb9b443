//! What is measured of the official Rust SDK: `server`, `http PORT`, or `client ERA COMMAND...`.

mod client;
mod server;

use std::error::Error;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server"] => server::serve_stdio().await,
        ["http", port] => server::serve_http(port.parse()?).await,
        ["client", era, program, ref arguments @ ..] => client::obey(era, program, arguments).await,
        _ => Err("usage: server | http PORT | client ERA COMMAND...".into()),
    }
}
