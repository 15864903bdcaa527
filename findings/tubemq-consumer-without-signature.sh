#!/usr/bin/env bash
# A TubeMQ consumer with user name and password does not sign its registration with the master.
#
# Version: Apache InLong tubemq-client 1.13.0 (Maven Central).
#
# Input: a ConsumerConfig with setAuthenticInfo(true, USER, PASSWORD). A consumer asks its
# RmtDataCache before each registration whether to add the signature, with the argument `true`: add
# it in any case (BaseMessageConsumer.genMasterCertificateInfo).
# Output: the answer is `false`, for `true` and for `false`. Only after the master has asked for
# authentication in an answer to an accepted request is it `true`, once, and then for the argument
# `false`.
#
# So a master that insists on a signature refuses each registration of such a consumer.
#
# Needs: bash, Java 11 or later, Maven. Ends with 0 if the behavior is as stated.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > pom.xml <<'POM'
<project><modelVersion>4.0.0</modelVersion><groupId>x</groupId><artifactId>x</artifactId><version>1</version>
<dependencies>
<dependency><groupId>org.apache.inlong</groupId><artifactId>tubemq-client</artifactId><version>1.13.0</version></dependency>
</dependencies></project>
POM
mvn -q dependency:copy-dependencies -DoutputDirectory=jars > mvn.log 2>&1 || { cat mvn.log >&2; exit 2; }

cat > Probe.java <<'JAVA'
import org.apache.inlong.tubemq.client.config.ConsumerConfig;
import org.apache.inlong.tubemq.client.consumer.RmtDataCache;

public class Probe {
    public static void main(String[] arguments) throws Exception {
        ConsumerConfig config = new ConsumerConfig("127.0.0.1:8715", "group");
        config.setAuthenticInfo(true, "user", "password");
        RmtDataCache cache = new RmtDataCache(config, null);
        System.out.println("enabled " + config.isEnableUserAuthentic());
        System.out.println("in any case " + cache.markAndGetAuthStatus(true));
        System.out.println("if needed " + cache.markAndGetAuthStatus(false));
        cache.storeMasterAuthRequire(true);
        System.out.println("after a request " + cache.markAndGetAuthStatus(false));
        cache.storeMasterAuthRequire(true);
        System.out.println("in any case after a request " + cache.markAndGetAuthStatus(true));
        System.exit(0);
    }
}
JAVA
java -cp 'jars/*' Probe.java > output.txt 2> errors.txt || { cat errors.txt >&2; exit 2; }
cat output.txt
diff - output.txt <<'EXPECTED' && echo "as stated: the registration is never signed"
enabled true
in any case false
if needed false
after a request true
in any case after a request false
EXPECTED
