//! The client of the official Rust SDK, and what it is told to do: a line of words, answered with a line of seconds, as in
//! orders.py.

use std::{
    error::Error,
    io::{BufRead, Write, stdin, stdout},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use rmcp::{
    Peer, RoleClient,
    model::{CallToolRequestParams, ProtocolVersion},
    service::{ClientLifecycleMode, ClientServiceExt},
    transport::TokioChildProcess,
};
use serde_json::json;
use tokio::{process::Command, task::JoinSet};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

pub async fn obey(era: &str, program: &str, arguments: &[&str]) -> Result<(), Box<dyn Error>> {
    let started = Instant::now();
    let modern = vec![ProtocolVersion::V_2026_07_28];
    let lifecycle = match era {
        "legacy" => ClientLifecycleMode::Initialize,
        "modern" => ClientLifecycleMode::Discover {
            preferred_versions: modern,
        },
        _ => ClientLifecycleMode::Auto {
            preferred_versions: modern,
            legacy_version: None,
        },
    };
    let mut command = Command::new(program);
    command.args(arguments);
    let client = ().serve_with_lifecycle(TokioChildProcess::new(command)?, lifecycle).await?;
    let peer = client.peer().clone();

    echo(&peer, text_of(0))
        .await
        .map_err(|error| error as Box<dyn Error>)?;
    tell(&[started.elapsed().as_secs_f64()])?;
    for line in stdin().lock().lines() {
        let times = follow(&peer, &line?)
            .await
            .map_err(|error| error as Box<dyn Error>)?;
        tell(&times)?;
    }
    client.cancel().await?;
    Ok(())
}

async fn follow(peer: &Peer<RoleClient>, line: &str) -> Outcome<Vec<f64>> {
    let (what, numbers) = line.split_once(' ').ok_or("an order has numbers")?;
    let numbers = numbers
        .split(' ')
        .map(str::parse)
        .collect::<Result<Vec<usize>, _>>()?;
    match (what, &numbers[..]) {
        ("alone", &[count]) => alone(peer, count).await,
        ("in_flight", &[count, window]) => in_flight(peer, count, window).await,
        ("large", &[size]) => Ok(vec![echo(peer, "x".repeat(size)).await?]),
        _ => Err(format!("there is no order {what:?}").into()),
    }
}

async fn alone(peer: &Peer<RoleClient>, count: usize) -> Outcome<Vec<f64>> {
    let mut times = Vec::with_capacity(count);
    for number in 0..count {
        times.push(echo(peer, text_of(number)).await?);
    }
    Ok(times)
}

/// As many callers as the window is wide, each of which calls again as soon as it has its result.
async fn in_flight(peer: &Peer<RoleClient>, count: usize, window: usize) -> Outcome<Vec<f64>> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut callers = JoinSet::new();
    let began = Instant::now();
    for _ in 0..window {
        let (peer, next) = (peer.clone(), next.clone());
        callers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<(), Box<dyn Error + Send + Sync>>(());
                }
                echo(&peer, text_of(number)).await?;
            }
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(vec![began.elapsed().as_secs_f64()])
}

async fn echo(peer: &Peer<RoleClient>, text: String) -> Outcome<f64> {
    let arguments = json!({ "text": &text })
        .as_object()
        .cloned()
        .unwrap_or_default();
    let began = Instant::now();
    let result = peer
        .call_tool(CallToolRequestParams::new("echo").with_arguments(arguments))
        .await?;
    let took = began.elapsed().as_secs_f64();
    match &result.content[..] {
        [block] if block.as_text().is_some_and(|block| block.text == text) => Ok(took),
        _ => Err(format!("it should have been {:.100}", text).into()),
    }
}

fn text_of(number: usize) -> String {
    format!("hello from call {number}")
}

fn tell(times: &[f64]) -> std::io::Result<()> {
    let words: Vec<String> = times.iter().map(f64::to_string).collect();
    writeln!(stdout(), "{}", words.join(" "))
}
