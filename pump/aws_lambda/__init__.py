"""AWS Lambda: an app as a function that a queue invokes, with the pump's own parts.

`handler` is the function that Lambda calls, `consumer` handles an event on the event loop,
`queue` handles what came from one subscription, `answer` is what the function will return.
Made by `App.lambda_handler` and loaded only then.
"""
