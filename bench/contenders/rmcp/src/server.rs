//! The two tools with the official Rust SDK, over stdio, or at an address.

use std::error::Error;

use rmcp::{
    ServerHandler, ServiceExt,
    handler::server::{router::tool::ToolRouter, wrapper::Parameters},
    tool, tool_handler, tool_router,
    transport::{
        stdio,
        streamable_http_server::{
            StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
        },
    },
};
use schemars::JsonSchema;
use serde::Deserialize;

#[derive(Deserialize, JsonSchema)]
struct EchoInput {
    text: String,
}

#[derive(Deserialize, JsonSchema)]
struct AddInput {
    a: i64,
    b: i64,
}

#[derive(Clone)]
struct Bench {
    // Kept: without it, the macro of the handler makes a router for each call.
    router: ToolRouter<Self>,
}

#[tool_router]
impl Bench {
    fn new() -> Self {
        Self {
            router: Self::tool_router(),
        }
    }

    #[tool(description = "")]
    async fn echo(&self, Parameters(EchoInput { text }): Parameters<EchoInput>) -> String {
        text
    }

    #[tool(description = "")]
    async fn add(&self, Parameters(AddInput { a, b }): Parameters<AddInput>) -> String {
        (a + b).to_string()
    }
}

#[tool_handler(router = self.router)]
impl ServerHandler for Bench {}

pub async fn serve_stdio() -> Result<(), Box<dyn Error>> {
    Bench::new().serve(stdio()).await?.waiting().await?;
    Ok(())
}

pub async fn serve_http(port: u16) -> Result<(), Box<dyn Error>> {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true);
    let bench = Bench::new();
    let service = StreamableHttpService::new(
        move || Ok(bench.clone()),
        LocalSessionManager::default().into(),
        config,
    );
    let router = axum::Router::new().nest_service("/mcp", service);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, router).await?;
    Ok(())
}
