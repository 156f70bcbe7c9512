"""A pump far from SQS: does it make of its credits what they allow?"""
