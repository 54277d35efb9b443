"""The server of the tutorial."""

from mcplumb import Context, Server, ToolError

server = Server("weather", version="1.0", instructions="Forecasts for a few cities.")
FORECASTS = {"Oslo": ["snow", "sun", "snow"], "Rome": ["sun", "sun", "rain"]}


@server.tool
async def forecast(city: str, days: int = 3) -> list[str]:
    """The weather of the next days.

    Args:
        city: The name of a city.
        days: How many days, up to three.
    """
    if city not in FORECASTS:
        raise ToolError(f"There is no forecast for {city}. Known are {', '.join(FORECASTS)}.")
    return FORECASTS[city][:days]


@server.tool
def measure(samples: int, ctx: Context) -> float:
    """Measure the temperature, slowly."""
    for number in range(samples):
        ctx.progress(number + 1, samples, f"sample {number + 1}")
    return 21.5


@server.resource("weather://{city}/today", mime_type="text/plain")
async def today(city: str) -> str | None:
    """The weather of today."""
    return FORECASTS[city][0] if city in FORECASTS else None


@server.prompt
def plan(city: str) -> str:
    """Plan a day."""
    return f"Plan a day in {city} that fits its weather."


if __name__ == "__main__":
    server.run()
