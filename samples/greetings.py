"""Greetings: the ten-line program.

Run it:   python -m samples.greetings
          pump send greetings '{"name": "Ada"}' --gateway local://.pumphouse/greetings
Expect:   Hello, Ada!
          (it goes on waiting for greetings; stop it with Ctrl-C)
"""

from pump import App, Command, Subscription

app = App("local://.pumphouse/greetings")


class Greet(Command):
    name: str


@app.handler
async def greet(request: Greet) -> None:
    print(f"Hello, {request.name}!", flush=True)


app.subscribe(Subscription(queue="greetings", request=Greet, dead_letter_queue="greetings-dead"))


if __name__ == "__main__":
    app.run()
