"""Push: messages are sent to consumers as soon as a broker has acknowledged them.

Push is only an acceleration: messages that are not pushed are pulled, so each part may skip a
message.
"""
