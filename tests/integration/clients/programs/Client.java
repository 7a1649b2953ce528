// Client URL: prints what is there, by both of Java's clients.
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;

public class Client {
  public static void main(String[] arguments) throws Exception {
    try (var stream = URI.create(arguments[0]).toURL().openStream()) {
      System.out.println("connection " + new String(stream.readAllBytes()));
    }
    var response = HttpClient.newHttpClient().send(HttpRequest.newBuilder(URI.create(arguments[0])).build(),
        HttpResponse.BodyHandlers.ofString());
    System.out.println(response.version() + " " + response.body());
  }
}
