"""A Java that starts soon: tests end before compiling well and collecting in parallel pay.

Measured on two cores: 12 s of CPU instead of 23 s for a session with two small jobs.
"""

QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
