"""SQS servers under load, their client, and the stand-ins that contenders run on."""
